"""Experiments as typed data: what a recipe returns, ``--set`` changes and a run folder stores."""

import copy
import dataclasses
import json
import math
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from torch import Tensor, nn

from orchid.ops.checks import check_fraction, did_you_mean

SCHEDULES = ("constant", "cosine", "linear")
PRECISIONS = ("no", "bf16", "fp16")
PARALLEL = ("ddp", "fsdp")
# What a recipe is, and what the paper reports for it.
FIXED = ("recipe", "paper")
# What is found in the data, or in the model that is started from, and cannot be set.
FOUND = ("task.digest", "task.classes", "model.digest")


class Task(Protocol):
    """The data, the loss and the metric of one experiment, as the engine sees them."""

    def build_model(self) -> nn.Module:
        """Return the model, freshly initialised from the global random state."""

    def train_batch(self, index: int, size: int, device: Any) -> tuple[Tensor, ...]:
        """Return the batch of a step, a pure function of its index; examples along the first axis."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the summed loss and the number of terms in the sum."""

    def evaluate(self, model: nn.Module, device: Any) -> dict[str, float]:
        """Return the test metrics of the model, which is in evaluation mode."""


@runtime_checkable
class Sharing(Protocol):
    """A task whose processes make their own shares of a batch, where a whole one would cost each of them too much."""

    def train_share(self, index: int, size: int, device: Any, rank: int, ranks: int) -> tuple[Tensor, ...]:
        """Return examples rank, rank + ranks, ... of the batch of a step."""


@runtime_checkable
class Pictured(Protocol):
    """A task that has pictures to show of a trained model."""

    def draw(self, model: nn.Module, device: Any, folder: Path) -> list[Path]:
        """Draw them into a run's folder; return their paths."""


@runtime_checkable
class Identified(Protocol):
    """A task that reads files: two runs have the same data by what these hold, wherever they lie."""

    def identify(self) -> None:
        """Read the data, and write into the settings what tells them from others: those of ``FOUND``."""


class TaskConfig(Protocol):
    """A task's settings."""

    def build(self, model: Any, seed: int) -> Task:
        """Return the task for a model's settings and a seed."""


@dataclass(kw_only=True)
class TrainConfig:
    """How to train.

    Attributes:
        steps: optimizer steps.
        batch_size: examples a step, over all processes and accumulated pieces together.
        learning_rate: peak learning rate.
        warmup: steps of linear warm-up.
        schedule: what follows: "constant", or "cosine" or "linear" decay that would reach zero one step after the last.
        weight_decay: decoupled, on the matrices of linear layers only.
        beta2: Adam's second-moment decay.
        clip: largest gradient norm; 0 does not clip.
        accumulate: pieces a batch is cut into to save memory.
        precision: "no", "bf16" or "fp16" autocast.
        graph: replay the step as a CUDA graph, which frees small models from the cost of launching kernels; without
            effect on a CPU, with several processes or with fp16.
        compile: compile the model with torch.compile; without effect on a CPU.
        parallel: what several processes do: "ddp" (each holds the model) or "fsdp" (each holds a part, FSDP2).
        log_every: steps between entries of metrics.jsonl.
        evaluate_every: steps between evaluations; the last step is always evaluated.
        checkpoint_every: steps between checkpoints.
    """

    steps: int
    batch_size: int
    learning_rate: float
    warmup: int = 0
    schedule: str = "cosine"
    weight_decay: float = 0.0
    beta2: float = 0.999
    clip: float = 1.0
    accumulate: int = 1
    precision: str = "no"
    graph: bool = False
    compile: bool = False
    parallel: str = "ddp"
    log_every: int = 50
    evaluate_every: int = 500
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Accept only settings that can be trained with; the first that cannot is an error that names it."""
        for name in ("steps", "batch_size", "accumulate", "log_every", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name}={getattr(self, name)!r} must be at least 1")
        for name in ("learning_rate", "warmup", "weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"train.{name}={getattr(self, name)!r} must be finite and must not be negative")
        check_fraction("train.beta2", self.beta2)
        for name, choices in (("schedule", SCHEDULES), ("precision", PRECISIONS), ("parallel", PARALLEL)):
            if getattr(self, name) not in choices:
                raise ValueError(f"train.{name}={getattr(self, name)!r} is not one of {', '.join(choices)}")
        if self.batch_size % self.accumulate:
            raise ValueError(f"train.accumulate={self.accumulate} must divide train.batch_size={self.batch_size}")


@dataclass(kw_only=True)
class Experiment:
    """Everything that determines a run.

    Attributes:
        recipe: the recipe's name.
        task: the task's settings.
        model: the model's settings.
        train: the training's settings.
        seed: of the initialisation, the data and dropout.
        paper: metrics the paper reports for this row, as fractions.
    """

    recipe: str
    task: Any
    model: Any
    train: TrainConfig
    seed: int = 0
    paper: dict[str, float] = field(default_factory=dict)

    def build(self) -> Task:
        """Return the task."""
        task: Task = self.task.build(self.model, self.seed)
        return task

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return dataclasses.asdict(self)

    def copy(self) -> Self:
        """Return an independent copy."""
        return copy.deepcopy(self)


def apply_overrides(experiment: Experiment, assignments: list[str]) -> None:
    """Apply ``a.b=value``s, in place, then check the whole; what is wrong is an error that names what is right."""
    for assignment in assignments:
        _apply(experiment, assignment)
    experiment.train.check()


def _apply(experiment: Experiment, assignment: str) -> None:
    path, separator, text = assignment.partition("=")
    if not separator or not path:
        raise ValueError(f"--set {assignment!r} is not of the form key=value, such as train.steps=100")
    *parents, last = path.split(".")
    if path.partition(".")[0] in FIXED:
        raise ValueError(f"{path!r} cannot be set: it belongs to the recipe; choose another recipe")
    if path in FOUND:
        raise ValueError(f"{path!r} cannot be set: it is found in what the run reads")
    target: Any = experiment
    for depth, key in enumerate(parents):
        _known(target, key, ".".join(parents[:depth]))
        target = target[key] if isinstance(target, dict) else getattr(target, key)
    if isinstance(target, dict):
        target[last] = _literal(text)
        return
    _known(target, last, ".".join(parents))
    if dataclasses.is_dataclass(getattr(target, last)):
        raise ValueError(f"{path!r} cannot be set; set the keys below it, or choose another recipe")
    kind = typing.get_type_hints(type(target))[last]
    setattr(target, last, _coerce(path, text, kind))


def _known(target: Any, key: str, path: str) -> None:
    if isinstance(target, dict):
        names = list(target)
    elif dataclasses.is_dataclass(target):
        names = [f.name for f in dataclasses.fields(target)]
    else:
        raise ValueError(f"{path!r} has no keys below it")
    if key not in names:
        where = f"{path!r}" if path else "the configuration"
        raise ValueError(f"{where} has no key {key!r}{did_you_mean(key, names)} (it has {', '.join(names)})")


def _literal(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _coerce(path: str, text: str, kind: Any) -> Any:
    value = _literal(text)
    for option in _options(kind):
        if option is str:
            return text
        if _fits(value, option):
            return float(value) if option is float else value
    raise ValueError(f"{path}={text!r} must be of type {_wanted(kind)}")


def _options(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)


def _wanted(kind: Any) -> str:
    return " or ".join(getattr(option, "__name__", str(option)) for option in _options(kind))


def _fits(value: Any, option: Any) -> bool:
    """Return whether a value is of a type; whole numbers are of type float too, True and False are no numbers."""
    if option is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    origin = typing.get_origin(option) or option
    return isinstance(value, origin) and isinstance(value, bool) == (origin is bool)


def _default(known: "dataclasses.Field[Any]", where: str, *, whole: bool) -> Any:
    if not whole and known.default is not dataclasses.MISSING:
        return known.default
    if not whole and known.default_factory is not dataclasses.MISSING:
        return known.default_factory()
    raise ValueError(f"{where} lacks the key {known.name!r}")


def replace_settings(target: Any, stored: Any, path: str = "") -> None:
    """Set every field of a configuration from stored plain data, in place; what does not fit is an error.

    A setting that there was not when the data were stored has its default, which is how it was then, whatever the
    recipe has made of it since.
    """
    where = f"{path!r}" if path else "the configuration"
    if not isinstance(stored, dict):
        raise ValueError(f"{where} is {stored!r}, where its keys and values should be")
    kinds = typing.get_type_hints(type(target))
    for known in dataclasses.fields(target):
        if known.name not in stored:
            setattr(target, known.name, _default(known, where, whole=not path))
    for name, value in stored.items():
        _known(target, name, path)
        current, own = getattr(target, name), f"{path}.{name}" if path else name
        if dataclasses.is_dataclass(current):
            replace_settings(current, value, own)
        elif any(_fits(value, option) for option in _options(kinds[name])):
            setattr(target, name, value)
        else:
            raise ValueError(f"{own}={value!r} must be of type {_wanted(kinds[name])}")
