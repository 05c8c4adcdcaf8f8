"""Learning rates: one grid for all, a quarter of the steps, a seed that no result uses, the validation set decides."""

import json
import math
from pathlib import Path
from typing import Any

from orchid.files import write_json
from orchid.train.config import Experiment
from orchid.train.grid import Cell

RATES = (3e-4, 1e-3, 3e-3, 1e-2)
SHARE = 4
SEED = 1000
# The settings by which tasks choose what they evaluate on.
SPLITS = ("evaluate_on", "held_out")
MEASURED = ("valid/loss", "valid/accuracy")


def read_choices(path: Path) -> dict[str, dict[str, Any]]:
    """Return the choices a file holds by their recipes, none if it does not exist; a file of others is an error."""
    if not path.exists():
        return {}
    try:
        return {choice["recipe"]: choice for choice in json.loads(path.read_text())["tuning"]}
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(
            f"--json {path} was not written by `orchid tune`: choices cannot be added to it; name another or new file"
        ) from None


def keep_choices(path: Path, choices: list[dict[str, Any]]) -> None:
    """Write the choices; those of other recipes that the file holds already stay."""
    kept = read_choices(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"tuning": list((kept | {choice["recipe"]: choice for choice in choices}).values())})


def tuning_cells(experiment: Experiment, rates: list[float], out: Path) -> list[Cell]:
    """Return the runs that choose the learning rate of ``experiment``; its test set is not touched."""
    for rate in rates:
        if not 0 < rate < math.inf:
            raise ValueError(f"--rates: {rate:g} is not a positive learning rate")
    cells = []
    for rate in rates:
        trial = experiment.copy()
        setattr(trial.task, _held_out(experiment), "valid")
        trial.seed = SEED
        trial.train.learning_rate = rate
        trial.train.steps = max(1, trial.train.steps // SHARE)
        trial.train.warmup //= SHARE
        trial.train.evaluate_every = trial.train.checkpoint_every = trial.train.steps
        cells.append(Cell(trial, out / experiment.recipe / f"rate-{rate:g}"))
    return cells


def _held_out(experiment: Experiment) -> str:
    """Return the task's setting that chooses between its validation and its test set."""
    for name in SPLITS:
        if hasattr(experiment.task, name):
            return name
    raise ValueError(f"{experiment.recipe} has no validation set to choose a learning rate on")


def choose(cells: list[Cell]) -> dict[str, Any] | None:
    """Return the table of one recipe's trials and the rate of the lowest validation loss; None unless all are done."""
    results = [result for cell in cells if (result := cell.result()) is not None]
    if len(results) < len(cells):
        return None
    for cell, result in zip(cells, results, strict=True):
        for name in MEASURED:
            if name not in result["metrics"]:
                raise ValueError(f"{cell.folder} has no {name}, which rates are compared by; delete it to run it again")
    trials = {
        f"{result['config']['train']['learning_rate']:g}": {
            name.removeprefix("valid/"): result["metrics"][name] for name in MEASURED
        }
        for result in results
    }
    first = results[0]
    return {
        "recipe": first["recipe"],
        "trials": trials,
        "chosen": float(min(trials, key=lambda rate: trials[rate]["loss"])),
        **{key: first[key] for key in ("seed", "steps", "hardware", "torch", "commit")},
    }
