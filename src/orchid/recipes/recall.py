"""Associative recall (section 4.1)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from orchid.models.sequence import SequenceConfig
from orchid.recipes.registry import Recipe
from orchid.tasks.recall import RecallConfig
from orchid.train.config import Experiment, TrainConfig


def _demo(name: str, learning_rate: float, **model: Any) -> Callable[[], Experiment]:
    def build() -> Experiment:
        return Experiment(
            recipe=f"recall/{name}",
            task=RecallConfig(vocab_size=20, length=32),
            model=SequenceConfig(d_model=32, depth=2, **model),
            train=TrainConfig(
                steps=550,
                batch_size=256,
                learning_rate=learning_rate,
                warmup=50,
                log_every=25,
                evaluate_every=25,
                checkpoint_every=150,
            ),
        )

    return build


def _vocabulary(name: str, vocab_size: int, learning_rate: float, paper: float | None, **model: Any) -> Recipe:
    """A cell of table icl2: one mixer at length 128 and a vocabulary size, hidden size 64, two blocks."""

    def build() -> Experiment:
        return Experiment(
            recipe=f"recall/v{vocab_size}-{name}",
            task=RecallConfig(vocab_size=vocab_size, length=128),
            model=SequenceConfig(d_model=64, depth=2, **model),
            train=TrainConfig(
                steps=6000,
                batch_size=128,
                learning_rate=learning_rate,
                warmup=200,
                log_every=100,
                evaluate_every=250,
                checkpoint_every=1000,
            ),
            paper={} if paper is None else {"test/accuracy": paper},
        )

    return _recipe(f"v{vocab_size}-{name}", f"table icl2: {name}, vocabulary {vocab_size}, length 128", build)


def _tiny(build: Callable[[], Experiment]) -> Callable[[], Experiment]:
    def tiny() -> Experiment:
        experiment = build()
        experiment.task = replace(experiment.task, vocab_size=8, length=16, test_size=100)
        experiment.model = replace(experiment.model, d_model=8)
        experiment.train = replace(
            experiment.train, steps=6, batch_size=8, warmup=2, log_every=2, evaluate_every=3, checkpoint_every=2
        )
        return experiment

    return tiny


def _recipe(name: str, summary: str, build: Callable[[], Experiment]) -> Recipe:
    return Recipe(f"recall/{name}", summary, build, _tiny(build))


RECIPES = [
    _recipe("demo-orchid", "the demo: Orchid, Type I, on a CPU", _demo("demo-orchid", 1e-2)),
    _recipe(
        "demo-static",
        "the demo's control: the same model, its kernel not conditioned on the data",
        _demo("demo-static", 1e-2, options={"conditioning": "static"}),
    ),
    _recipe(
        "demo-attention",
        "the demo's baseline: attention with learned positions in Orchid's place",
        _demo("demo-attention", 2e-3, mixer="attention", positions="learned"),
    ),
    *(_vocabulary("orchid", size, 3e-3, paper) for size, paper in ((20, 1.0), (30, 0.994), (40, 0.992))),
    *(_vocabulary("static", size, 3e-3, None, options={"conditioning": "static"}) for size in (20, 30, 40)),
    *(_vocabulary("attention", size, 1e-3, 1.0, mixer="attention", positions="learned") for size in (20, 30, 40)),
]
