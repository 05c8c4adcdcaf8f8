"""Many runs as one: what is done is skipped, what was cut short is resumed, several workers share the rest."""

import contextlib
import fcntl
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

from orchid.train.config import Experiment
from orchid.train.engine import Diverged, Engine
from orchid.train.environment import JOBS
from orchid.train.run_folder import RunFolder, write_json

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Cell:
    """One run of a grid and the folder it lives in."""

    experiment: Experiment
    folder: Path

    def result(self) -> dict[str, Any] | None:
        """Return the result if the run is finished."""
        return RunFolder(self.folder).read_result()


def run_cells(
    cells: list[Cell],
    console: Console,
    *,
    cpu: bool = False,
    minutes: float | None = None,
    tensorboard: bool = False,
) -> str | None:
    """Run every cell that is neither done nor being run by another worker.

    A run that diverges is reported and passed over. Returns why the grid stopped early ("time limit", "interrupt",
    "termination"), or None.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    for cell in cells:
        if cell.result() is not None:
            continue
        with _claimed(cell.folder) as mine:
            if not mine or cell.result() is not None:
                continue
            left = None if deadline is None else max(0.0, (deadline - time.monotonic()) / 60)
            try:
                outcome = Engine(
                    cell.experiment, cell.folder, resume=True, time_limit=left, cpu=cpu, tensorboard=tensorboard
                ).train()
            except Diverged as error:
                console.print(f"{cell.experiment.recipe}  seed {cell.experiment.seed}  failed: {error}", markup=False)
                continue
            finally:
                gc.collect()  # a captured step holds its memory until then
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
            if outcome.result is None:
                return outcome.stopped
    return None


def run_workers(jobs: int) -> int:
    """Run this very command in ``jobs`` processes, each with --jobs 1, to their end; return the worst status."""
    command = [sys.executable, "-m", "orchid", *sys.argv[1:], "--jobs", "1"]
    environment = {**os.environ, JOBS: str(jobs), "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    workers = [subprocess.Popen(command, env=environment) for _ in range(jobs)]

    def forward(number: int, frame: object) -> None:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(number)

    # Ctrl-C reaches the workers by itself; they stop after the step in flight and this process waits for them.
    previous = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        return max(worker.wait() for worker in workers)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    """Give whether this process may run ``folder``: a lock beside it that the system drops when the process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def keep_result(cell: Cell, folder: Path) -> None:
    """Copy the result of a finished run to ``folder``/NAME-seed-N.json."""
    result = cell.result()
    if result is not None:
        folder.mkdir(parents=True, exist_ok=True)
        name = result["recipe"].rpartition("/")[2]
        write_json(folder / f"{name}-seed-{result['seed']}.json", result)


def parse_numbers(name: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Return the numbers of a comma-separated list."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} {text!r} is not a list of numbers such as 0,1,2") from None
