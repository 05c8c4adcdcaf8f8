"""Associative recall (section 4.1): demo, tables icl and icl2, figure synthetics1, ablations, the paper's recipe."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from orchid.models.sequence import SequenceConfig
from orchid.recipes.recall_paper import LENGTHS, paper_accuracy
from orchid.recipes.registry import Recipe
from orchid.tasks.recall import RecallConfig
from orchid.train.config import Experiment, TrainConfig

VOCABULARIES = (20, 30, 40)
# Sequences a step at each length: more tokens at longer ones, since a sequence shows one dictionary however long.
BATCH = {128: 128, 512: 64, 2048: 32, 8192: 16, 32768: 8, 131072: 4}


@dataclass(frozen=True)
class Model:
    """A row of the tables: a mixer with its options, positions where it needs them, and its learning rate.

    Every row had the same grid of rates (`orchid tune`, kept in results/recall/tuning.json; a test compares).
    """

    rate: float
    mixer: str = "orchid"
    options: dict[str, Any] = field(default_factory=dict)
    positions: str = "none"

    def config(self, d_model: int = 64) -> SequenceConfig:
        """Return the model's settings: hidden size 64 and two blocks, as in the paper."""
        options = dict(self.options)
        return SequenceConfig(d_model=d_model, mixer=self.mixer, options=options, positions=self.positions)


MODELS = {
    "orchid": Model(1e-2),
    "static": Model(1e-2, options={"conditioning": "static"}),
    "attention": Model(3e-3, "attention", positions="learned"),
    # Orchid and its kin see their neighbours through short convolutions; in this row attention does too.
    "attention-conv": Model(1e-2, "attention", {"short_conv": 3}, "learned"),
    "ckconv": Model(1e-2, "ckconv", {"gated": True}),
    "h3": Model(3e-3, "h3"),
    "hyena": Model(3e-3, "hyena"),
    "mamba": Model(1e-2, "mamba"),
    "monarch": Model(1e-3, "monarch"),
    "performer": Model(3e-3, "performer", positions="learned"),
    "s4": Model(1e-2, "s4"),
}

# Rows of table icl (vocabulary 20) and of figure synthetics1 (every vocabulary, to 32,768).
LONG_ROWS = ("orchid", "hyena", "monarch", "attention-conv")
FIGURE_ROWS = ("orchid", "hyena", "ckconv", "h3")

# The ablations, each a change of Orchid's options at vocabulary 40, length 128.
ABLATIONS: dict[str, dict[str, Any]] = {
    "phase": {},
    "placement-two-space": {"spatial_layers": 2, "spectral_layers": 0},
    "placement-two-frequency": {"spatial_layers": 0, "spectral_layers": 2},
    "placement-three-three": {"spatial_layers": 3, "spectral_layers": 3},
    "cross": {"conditioning": "cross"},
    **{
        f"cross-{sigma}": {"conditioning": "cross", "sigma": sigma}
        for sigma in ("tanh", "sigmoid", "softsign", "softshrink")
    },
    "phase-backward": {"norm": "backward"},
    "phase-dct": {"transform": "dct"},
    "phase-dct-backward": {"transform": "dct", "norm": "backward"},
    "cross-backward": {"conditioning": "cross", "norm": "backward"},
    "cross-dct": {"conditioning": "cross", "transform": "dct"},
    "cross-dct-backward": {"conditioning": "cross", "transform": "dct", "norm": "backward"},
    "static": {"conditioning": "static"},
}


def _recipe(name: str, summary: str, build: Callable[[], Experiment]) -> Recipe:
    def tiny() -> Experiment:
        experiment = build()
        task, train = experiment.task, experiment.train
        experiment.task = replace(task, vocab_size=8, length=16, test_size=100, train_size=task.train_size and 20)
        experiment.model = replace(experiment.model, d_model=8)
        experiment.train = replace(
            train, steps=6, batch_size=8, warmup=2, log_every=2, evaluate_every=3, checkpoint_every=2
        )
        return experiment

    return Recipe(f"recall/{name}", summary, build, tiny)


def _demo(name: str, summary: str, model: Model, rate: float) -> Recipe:
    def build() -> Experiment:
        return Experiment(
            recipe=f"recall/demo-{name}",
            task=RecallConfig(vocab_size=20, length=32),
            model=model.config(d_model=32),
            train=TrainConfig(
                steps=550,
                batch_size=256,
                learning_rate=rate,
                warmup=50,
                log_every=25,
                evaluate_every=25,
                checkpoint_every=150,
            ),
        )

    return _recipe(f"demo-{name}", summary, build)


def _training(length: int, rate: float, steps: int, evaluations: int) -> TrainConfig:
    return TrainConfig(
        steps=steps,
        batch_size=BATCH[length],
        learning_rate=rate,
        warmup=200,
        graph=True,
        compile=True,
        log_every=100,
        evaluate_every=steps // evaluations,
        checkpoint_every=1000,
    )


def _cell(row: str, vocab_size: int, length: int) -> Recipe:
    """A cell of a table: one model, one vocabulary, one length."""
    name = f"v{vocab_size}-{row}" if length == 128 else f"v{vocab_size}-l{length}-{row}"
    where = "table icl2" if length == 128 else "table icl" if vocab_size == 20 else "figure synthetics1"

    def build() -> Experiment:
        short = length == 128
        train = _training(length, MODELS[row].rate, *((6000, 24) if short else (1500, 5)))
        if MODELS[row].mixer == "attention" and not short:
            train.precision = "bf16"  # fused attention is quadratic but fast there; the others stay in float32
        return Experiment(
            recipe=f"recall/{name}",
            task=RecallConfig(vocab_size=vocab_size, length=length, test_size=2000 if short else 500),
            model=MODELS[row].config(),
            train=train,
            paper=paper_accuracy(row.removesuffix("-conv"), vocab_size, length),
        )

    return _recipe(name, f"{where}: {row}, vocabulary {vocab_size}, length {length:,}", build)


def _answer(vocab_size: int) -> Recipe:
    name = f"answer-v{vocab_size}-orchid"

    def build() -> Experiment:
        return Experiment(
            recipe=f"recall/{name}",
            task=RecallConfig(vocab_size=vocab_size, length=128, signal="answer"),
            model=MODELS["orchid"].config(),
            train=_training(128, MODELS["orchid"].rate, 12000, 24),
            paper=paper_accuracy("orchid", vocab_size, 128),
        )

    return _recipe(name, f"only the query's value trained: orchid, vocabulary {vocab_size}, length 128", build)


def _ablation(name: str, options: dict[str, Any]) -> Recipe:
    what = ", ".join(f"{key}={value}" for key, value in options.items()) or "the default"

    def build() -> Experiment:
        return Experiment(
            recipe=f"recall/ablation-{name}",
            task=RecallConfig(vocab_size=40, length=128),
            model=Model(0.0, options=options).config(),
            train=_training(128, MODELS["orchid"].rate, 2000, 40),
        )

    return _recipe(f"ablation-{name}", f"ablation at vocabulary 40, length 128: {what}", build)


def _paper(vocab_size: int, name: str, summary: str, signal: str, train_size: int) -> Recipe:
    """The paper's own settings; batch, set size and epochs are those of the code its protocol comes from."""
    options: dict[str, Any] = {"transform": "dct"}
    if vocab_size == 40:
        options |= {"spatial_layers": 3, "spectral_layers": 3}

    def build() -> Experiment:
        return Experiment(
            recipe=f"recall/{name}",
            task=RecallConfig(vocab_size=vocab_size, length=128, signal=signal, train_size=train_size),
            model=Model(0.0, options=options).config(),
            train=TrainConfig(
                steps=20000,
                batch_size=32,
                learning_rate=5e-4,
                warmup=1000,
                schedule="constant",
                weight_decay=0.1,
                graph=True,
                compile=True,
                log_every=200,
                evaluate_every=1000,
                checkpoint_every=5000,
            ),
            paper=paper_accuracy("orchid", vocab_size, 128),
        )

    return _recipe(name, summary, build)


def _papers(vocab_size: int) -> list[Recipe]:
    name, where = f"paper-v{vocab_size}", f"the paper's recipe to the letter, vocabulary {vocab_size}"
    return [
        _paper(vocab_size, name, f"{where}: the query's value trained, 5,000 examples", "answer", 5000),
        _paper(vocab_size, f"{name}-fresh", f"{where}, but fresh examples every step", "answer", 0),
        _paper(vocab_size, f"{name}-masked", f"{where}, but fresh examples and masked values", "masked", 0),
    ]


def _cells() -> list[Recipe]:
    cells = [(row, vocabulary, 128) for vocabulary in VOCABULARIES for row in MODELS]
    cells += [(row, 20, length) for length in LENGTHS[1:] for row in LONG_ROWS]
    cells += [(row, size, length) for size in VOCABULARIES for length in LENGTHS[1:-1] for row in FIGURE_ROWS]
    return [_cell(*cell) for cell in dict.fromkeys(cells)]


RECIPES = [
    _demo("orchid", "the demo: Orchid, Type I, on a CPU", MODELS["orchid"], 1e-2),
    _demo("static", "the demo's control: the same, its kernel not conditioned on the data", MODELS["static"], 1e-2),
    _demo("attention", "the demo's baseline: attention with learned positions", MODELS["attention"], 2e-3),
    *_cells(),
    *(_ablation(name, options) for name, options in ABLATIONS.items()),
    *(_answer(size) for size in VOCABULARIES),
    *(recipe for size in VOCABULARIES for recipe in _papers(size)),
]
