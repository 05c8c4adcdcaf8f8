"""Fine-tuning of one pre-trained model on GLUE: every task, several seeds, what is done skipped."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchid.files import atomic_folder
from orchid.ops.checks import check_choice, check_fraction, check_positive
from orchid.recipes import get_recipe
from orchid.recipes.bert import glue_training
from orchid.tasks.glue import GlueTask, examples_digest, model_digest
from orchid.tasks.glue_data import GLUE, find_files, read_examples
from orchid.tasks.tokenizer import start_tokenizer
from orchid.train.config import Experiment
from orchid.train.engine import Engine, Outcome
from orchid.train.grid import Cell, keep_result
from orchid.train.run_folder import RunFolder

FIRST = "MNLI"  # others start from it
MODEL = "model"  # under a run's folder: what it has fine-tuned, for from_pretrained


@dataclass(frozen=True)
class Changes:
    """What to do otherwise than the paper, for all tasks alike; None and "" are the paper's for each."""

    pooling: str = ""
    learning_rate: float | None = None
    batch_size: int | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        if self.learning_rate is not None:
            check_positive("--learning-rate", self.learning_rate)
        if self.dropout is not None:
            check_fraction("--dropout", self.dropout)


UNCHANGED = Changes()


def check_start(start: Path) -> None:
    """Accept only a folder with an Orchid-BERT, whatever its mixer."""
    from orchid.models.bert import OrchidBertConfig

    file = start / "config.json"
    if not file.is_file():
        raise ValueError(f"{start} is not a pre-trained model: it has no config.json (`orchid export` writes one)")
    try:
        kind = json.loads(file.read_text()).get("model_type")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{file} is damaged and cannot be read ({error})") from None
    if kind != OrchidBertConfig.model_type:
        raise ValueError(
            f"{file} is of a model of type {kind!r}; expected {OrchidBertConfig.model_type!r}: an Orchid-BERT, which "
            "with mixer='attention' is BERT"
        )


def glue_experiments(
    start: Path,
    data: Path,
    out: Path,
    names: list[str],
    seeds: list[int],
    *,
    large: bool,
    tiny: bool,
    mnli: bool = True,
    changes: Changes = UNCHANGED,
) -> list[tuple[Experiment, Path]]:
    """Return experiments and run folders, MNLI before the tasks that start from it.

    All data and the tokenizer are read once before, and what the folders hold already is compared: other settings are
    an error. Tasks that start from MNLI take the model of this call, or of an earlier one under ``out``, or else
    ``start`` itself, as all do without ``mnli``.
    """
    check_start(start)
    own = model_digest(start)
    names = [name for name in (FIRST, *GLUE) if name in {check_choice("--tasks", name, GLUE) for name in names}]
    planned = []
    for seed in seeds:
        for name in dict.fromkeys(names):
            spec = GLUE[name]
            train, dev = find_files(data, spec)
            examples = len(read_examples(train, spec))
            for path in dev:
                read_examples(path, spec)
            recipe = get_recipe(f"bert/glue-{name.lower()}" + ("-large" if large else ""))
            experiment = recipe.tiny() if tiny else recipe.build()
            rate, batch = changes.learning_rate, changes.batch_size
            if not tiny:
                experiment.train = glue_training(spec, examples, large=large, learning_rate=rate, batch_size=batch)
            else:
                experiment.train.learning_rate = experiment.train.learning_rate if rate is None else rate
                experiment.train.batch_size = experiment.train.batch_size if batch is None else batch
            experiment.seed, experiment.task.data, experiment.model.start = seed, str(data), str(start)
            experiment.task.pooling = changes.pooling or experiment.task.pooling
            experiment.task.dropout = experiment.task.dropout if changes.dropout is None else changes.dropout
            experiment.model.digest, experiment.task.digest = own, examples_digest(data, spec)
            folder = out / name / f"seed-{seed}"
            if spec.from_mnli and mnli and (FIRST in names or _mnli_is_there(experiment, folder)):
                _start_from(experiment, mnli_model(folder))
            planned.append((experiment, folder))
    start_tokenizer(start, max(experiment.task.length for experiment, _ in planned))
    for experiment, folder in planned:
        _check(experiment, folder)
    for name, folder, stored in runs_under(out):
        theirs = stored["model"].get("digest")
        if theirs and theirs != own and not GLUE[name].from_mnli:
            raise ValueError(f"{folder} holds a run from another model (model.digest); choose another --out")
    return planned


def runs_under(out: Path) -> list[tuple[str, Path, dict[str, Any]]]:
    """Return the task, the folder and the settings of every run under a folder of GLUE runs."""
    folders = [(name, folder) for name in GLUE for folder in sorted((out / name).glob("seed-*"))]
    return [(n, folder, RunFolder(folder).read_config()) for n, folder in folders if RunFolder(folder).config.is_file()]


def _check(experiment: Experiment, folder: Path) -> None:
    """Accept a folder that holds a run only as this run's."""
    if RunFolder(folder).config.is_file():
        RunFolder(folder).check(experiment.to_dict())


def _start_from(experiment: Experiment, model: Path) -> None:
    """Start from a model that may not be there yet."""
    experiment.model.start, experiment.model.digest = str(model), model_digest(model) if model.is_dir() else ""


def mnli_model(folder: Path) -> Path:
    """Return the model fine-tuned on MNLI beside a run's folder, with the same seed."""
    return folder.parent.parent / FIRST / folder.name / MODEL


def _mnli_is_there(experiment: Experiment, folder: Path) -> bool:
    """Return whether an earlier call has fine-tuned the same model on MNLI; another's, or otherwise, is an error."""
    model = mnli_model(folder)
    if not model.is_dir():
        return False
    stored = RunFolder(model.parent).read_config()
    start = "digest" if stored["model"].get("digest") else "start"
    wanted = {
        f"model.{start}": (stored["model"].get(start), getattr(experiment.model, start)),
        "task.pooling": (stored["task"].get("pooling", ""), experiment.task.pooling),
        "task.length": (stored["task"].get("length"), experiment.task.length),
    }
    for name, (theirs, ours) in wanted.items():
        if theirs != ours:
            raise ValueError(
                f"{model.parent} was fine-tuned with {name}={theirs!r}, not {ours!r}: {experiment.task.name} cannot "
                "start from it; choose another --out"
            )
    return True


def run_glue(planned: list[tuple[Experiment, Path]], *, cpu: bool, keep: Path | None = None) -> Outcome | None:
    """Run what is not done; return the outcome of a run that was asked to stop, or None.

    Results are copied to ``keep`` as runs finish: a call that is killed has kept what was done.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError("orchid glue runs in one process, not under torchrun: its runs take minutes on one device")
    for experiment, folder in planned:
        if not experiment.model.digest:  # started from what this very call has fine-tuned
            _start_from(experiment, Path(experiment.model.start))
            _check(experiment, folder)
        done = (folder / MODEL).is_dir() and any(folder.glob("predictions*.tsv"))  # the model appears last
        if not done and (stopped := _fine_tune(experiment, folder, cpu=cpu)) is not None:
            return stopped
        if keep is not None:
            keep_result(Cell(experiment, folder), keep)
    return None


def _fine_tune(experiment: Experiment, folder: Path, *, cpu: bool) -> Outcome | None:
    """Run one, and write its predictions and its model; return the outcome if it was asked to stop."""
    engine = Engine(experiment, folder, resume=True, cpu=cpu)
    outcome = engine.train()
    if outcome.result is None:
        return outcome
    engine.load()
    model: Any = engine.model.eval()
    assert isinstance(engine.task, GlueTask)
    engine.task.write_predictions(model, engine.accelerator.device, folder)
    with atomic_folder(folder / MODEL) as temporary:
        model.save_pretrained(temporary)
        engine.task.tokenizer.save_pretrained(temporary)
    return None
