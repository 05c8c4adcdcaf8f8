"""The application that commands belong to, and what they share: options, messages, errors."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from orchid.train.config import Experiment
from orchid.train.data_folder import DATA

app = typer.Typer(
    help="Orchid: data-dependent convolution for sequence modeling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
# A file or a pipe has no width of its own.
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 140)

Recipe = Annotated[str, typer.Argument(help="A recipe's name, as `orchid list` shows it.")]
Setting = Annotated[list[str] | None, typer.Option("--set", help="Change a setting: a.b=value. Repeatable.")]
Data = Annotated[Path | None, typer.Option(help="The folder of the data: task.data.", show_default=f"that in {DATA}")]
Tiny = Annotated[bool, typer.Option("--tiny", help="The recipe's small twin, which runs in seconds.")]
Patterns = Annotated[list[str], typer.Argument(help="Recipes, or patterns such as 'recall/v20-*'.")]
Board = Annotated[bool, typer.Option("--tensorboard", help="Write event files for TensorBoard too.")]
Limit = Annotated[float | None, typer.Option(help="Minutes after which to stop, resumable.")]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write what was measured here.")]
Cpu = Annotated[bool, typer.Option("--cpu", help="Stay on the CPU even where there is a GPU.")]


@contextmanager
def errors() -> Iterator[None]:
    """Turn bad input into a message and exit code 2, and a diverged run into exit code 1."""
    from orchid.train.engine import Diverged

    try:
        yield
    except (ValueError, OSError, Diverged) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {error}", markup=False)
        raise typer.Exit(1 if isinstance(error, Diverged) else 2) from None


def leave_stopped(outcome: Any, how: str) -> NoReturn:
    """Say how to go on with a run that was stopped, and exit as the shell expects."""
    console.print(f"stopped at step {outcome.step} ({outcome.stopped}); {how} goes on\nfiles: {outcome.folder}")
    raise typer.Exit({"interrupt": 130, "termination": 143}.get(outcome.stopped, 0))


def say_if_unfinished(engine: Any) -> None:
    """Say which step a model is of, where it is not that of a finished run."""
    if not engine.finished:
        trained = "nothing is trained yet" if engine.step == 0 else "the run has no finished model"
        notes = Console(stderr=True, highlight=False, soft_wrap=True)
        notes.print(f"checkpoint of step {engine.step} of {engine.config.steps}: {trained}", markup=False)


def meta_model(experiment: Experiment) -> Any:
    """Return the experiment's model without its memory."""
    import torch

    with torch.device("meta"):
        return experiment.build().build_model()
