"""Many runs as one: what is done is skipped, what was cut short is resumed, several workers share the rest."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

from orchid.files import write_json
from orchid.train.config import Experiment
from orchid.train.engine import Diverged, Engine
from orchid.train.environment import JOBS
from orchid.train.lock import InUse
from orchid.train.run_folder import RunFolder

# Tells the workers of one grid from those of the next: a run that failed in this one is not tried again. Process
# numbers would not do: in a container every grid may have the same.
GRID = "ORCHID_GRID"
# How a worker leaves when the time is up.
TIME_IS_UP = 75
STOPPED = {130: "interrupt", 143: "termination", TIME_IS_UP: "time limit"}

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Cell:
    """One run of a grid and the folder it lives in."""

    experiment: Experiment
    folder: Path

    def result(self) -> dict[str, Any] | None:
        """Return the result if the run is finished; one of other settings is an error."""
        folder = RunFolder(self.folder)
        found = folder.read_result()
        if found is not None:
            folder.check(self.experiment.to_dict())
        return found

    @property
    def name(self) -> str:
        """The recipe and the seed."""
        return f"{self.experiment.recipe}  seed {self.experiment.seed}"


def run_cells(
    cells: list[Cell],
    console: Console,
    *,
    cpu: bool = False,
    minutes: float | None = None,
    tensorboard: bool = False,
) -> str | None:
    """Run every cell that is neither done nor being run by another worker.

    A run that fails (its loss is not finite, its settings do not fit, it is too large) is reported and passed over.
    Returns why the grid stopped early ("time limit", "interrupt", "termination"), or None.
    """
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    grid = os.environ.get(GRID) or uuid.uuid4().hex
    for cell in cells:
        if _failed(cell, grid):
            continue
        try:
            if cell.result() is not None:
                continue
            left = None if deadline is None else max(0.0, (deadline - time.monotonic()) / 60)
            outcome = Engine(
                cell.experiment, cell.folder, resume=True, time_limit=left, cpu=cpu, tensorboard=tensorboard
            ).train()
        except InUse:
            continue  # another worker is at it
        except (Diverged, ValueError, OSError, RuntimeError) as error:
            console.print(f"{cell.name}  failed: {error}", markup=False)
            _mark_failed(cell, grid)
            continue
        finally:
            gc.collect()  # a captured step holds its memory until then
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        if outcome.stopped is not None:
            return outcome.stopped
    return None


def run_workers(jobs: int) -> tuple[str | None, int]:
    """Run this very command in ``jobs`` processes to their end; return why they stopped early, and the worst status."""
    environment = {
        **os.environ,
        JOBS: str(jobs),
        GRID: uuid.uuid4().hex,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    command = [sys.executable, "-m", "orchid", *sys.argv[1:]]
    # Ctrl-C reaches the workers by itself; they stop after the step in flight and this process waits for them.
    previous = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN)}
    workers = [subprocess.Popen(command, env=environment, preexec_fn=_heed_interrupts) for _ in range(jobs)]

    def forward(number: int, frame: object) -> None:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(number)

    previous[signal.SIGTERM] = signal.signal(signal.SIGTERM, forward)
    try:
        codes = [code if code >= 0 else 128 - code for code in (worker.wait() for worker in workers)]
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    stopped = next((STOPPED[code] for code in codes if code in STOPPED), None)
    return stopped, max(code for code in codes if code != TIME_IS_UP) if set(codes) != {TIME_IS_UP} else 0


def keep_result(cell: Cell, folder: Path) -> None:
    """Copy the result of a finished run to ``folder``/NAME-seed-N.json."""
    result = cell.result()
    if result is not None:
        folder.mkdir(parents=True, exist_ok=True)
        name = result["recipe"].rpartition("/")[2]
        write_json(folder / f"{name}-seed-{result['seed']}.json", result)


def parse_numbers(name: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Return the different numbers of a comma-separated list."""
    try:
        return list(dict.fromkeys(kind(part) for part in text.split(",")))
    except ValueError:
        raise ValueError(f"{name} {text!r} is not a list of numbers such as 0,1,2") from None


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _failures(cell: Cell) -> Path:
    return cell.folder.with_name(f"{cell.folder.name}.failed")


def _mark_failed(cell: Cell, grid: str) -> None:
    cell.folder.parent.mkdir(parents=True, exist_ok=True)  # settings that do not fit have claimed no folder
    _failures(cell).write_text(grid)


def _failed(cell: Cell, grid: str) -> bool:
    """Return whether the run failed in this very grid; another one tries it again."""
    marker = _failures(cell)
    return marker.is_file() and marker.read_text() == grid
