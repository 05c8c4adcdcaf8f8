"""Steps a second of a recipe, and the share of a step that making its batch takes."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from orchid.files import write_json
from orchid.recipes import resolve_recipe
from orchid.train.config import Experiment
from orchid.train.engine import Engine
from orchid.train.environment import commit, hardware

WARMUP = 10
SECONDS = 2.0  # measured for each number
MOST = 400


def run_training_benchmark(
    console: Console,
    recipes: list[str],
    settings: list[str],
    json_file: Path | None,
    *,
    cpu: bool,
    tiny: bool,
    data: Path | None = None,
) -> dict[str, Any]:
    """Time the steps of some recipes, print a table and, with ``json_file``, keep it."""
    rows: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    table = Table("recipe", "ms a step", "steps/s", "ms a batch", "its share", box=None, padding=(0, 2, 0, 0))
    for name in recipes:
        row, facts = _time_recipe(resolve_recipe(name, settings, tiny=tiny, data=data), cpu=cpu)
        rows.append(row)
        share = f"{100 * row['batch_ms'] / row['step_ms']:.1f} %"
        table.add_row(name, f"{row['step_ms']:.2f}", f"{1e3 / row['step_ms']:.0f}", f"{row['batch_ms']:.3f}", share)
    console.print(table)
    report = {"hardware": facts, "torch": torch.__version__, "commit": commit(), "training": rows}
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        write_json(json_file, report)
    return report


def _time_recipe(experiment: Experiment, *, cpu: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(experiment, Path(folder) / "run", cpu=cpu)
        for _ in range(WARMUP):
            engine.take_step(engine.pieces())
        device = engine.accelerator.device
        step_ms = _milliseconds(lambda: engine.take_step(engine.pieces()), device)
        batch_ms = _milliseconds(engine.pieces, device)
    config = experiment.to_dict()
    row = {
        "recipe": experiment.recipe,
        "task": config["task"],
        "train": config["train"],
        "step_ms": step_ms,
        "batch_ms": batch_ms,
    }
    return row, hardware(device)


def _milliseconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the time of a call, many queued one after the other, the device drained at both ends."""
    drain = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    drain()
    began, calls = time.perf_counter(), 0
    while calls < MOST and time.perf_counter() - began < SECONDS:
        call()
        calls += 1
    drain()
    return 1e3 * (time.perf_counter() - began) / calls
