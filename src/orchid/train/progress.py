"""A live line in a terminal, a plain line now and then elsewhere."""

import os
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from orchid.train.config import Experiment
from orchid.train.environment import JOBS

PLAIN_LINES = 10


class Progress:
    """Shows the step, the loss, the test metrics, steps per second and the time left."""

    def __init__(self, experiment: Experiment, start: int, shown: bool) -> None:
        self.name, self.steps, self.start = experiment.recipe, experiment.train.steps, start
        self.began = time.monotonic()
        self.console = Console(quiet=not shown, highlight=False, soft_wrap=True)
        self.bar: Bar | None = None
        self.due = start
        if self.console.is_terminal and JOBS not in os.environ:  # several bars on one screen would overwrite each other
            self.bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.task = self.bar.add_task(self.name, total=self.steps, completed=start, text="")

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self, step: int) -> None:
        """Show that a step is done."""
        if self.bar is not None:
            self.bar.update(self.task, completed=step)

    def update(self, step: int, loss: float, metrics: dict[str, float]) -> None:
        """Show a step with its loss and the newest metrics."""
        rate = (step - self.start) / max(1e-9, time.monotonic() - self.began)
        text = f"loss {loss:.4f}  {rate:.1f} steps/s"
        if metrics:  # a task's first metric is its main one
            name, value = next(iter(metrics.items()))
            text = f"{name.partition('/')[2]} {value:.4f}  {text}"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, text=text)
        elif step >= self.due or step == self.steps:
            self.console.print(f"{self.name}  step {step}/{self.steps}  {text}")
            self.due = step + self.steps // PLAIN_LINES
