"""What the engine sees of an experiment: a task, and what some tasks can do besides."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn


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
