"""Experiments as typed data: what a recipe returns and a run folder stores."""

import copy
import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Self

from orchid.ops.checks import check_fraction
from orchid.train.task import Task

SCHEDULES = ("constant", "cosine", "linear")
PRECISIONS = ("no", "bf16", "fp16")
PARALLEL = ("ddp", "fsdp")


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
