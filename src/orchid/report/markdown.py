"""What the rendered tables are made of: cells, spreads over seeds, groups of runs."""

import json
import math
import statistics
from collections.abc import Callable, Iterable
from typing import Any

PASS = 0.99

Run = dict[str, Any]


def markdown_table(header: list[str], rows: Iterable[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def grouped(runs: Iterable[Run], key: Callable[[Run], Any]) -> list[list[Run]]:
    """Return the runs in groups of equal keys, in order of appearance."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(key(run), sort_keys=True), []).append(run)
    return list(groups.values())


def steps_to(run: Run, accuracy: float) -> float:
    """Return the step of the first evaluation at or above an accuracy, or infinity."""
    passed = [entry["step"] for entry in run["history"] if entry["test/accuracy"] >= accuracy]
    return float(passed[0]) if passed else math.inf


def spread(values: list[float], form: str = "{:.1f}") -> str:
    """Return the mean, and the range where there is one; infinite values were not reached and are counted."""
    reached = [value for value in values if value != math.inf]
    if not reached:
        return "not reached"
    mean, low, high = (form.format(value) for value in (statistics.mean(reached), min(reached), max(reached)))
    text = mean if low == high else f"{mean} ({low} to {high})"
    missed = len(values) - len(reached)
    return f"{text}; {missed} of {len(values)} not" if missed else text


def percent(runs: list[Run], metric: str = "test/accuracy") -> str:
    """Return an accuracy of some runs, mean and range in percent; "not run" where there are none."""
    return spread([100 * run["metrics"][metric] for run in runs]) if runs else "not run"


def model_name(run: Run) -> str:
    """Return a model's mixer and options."""
    model = run["config"]["model"]
    return str(model["mixer"]) + "".join(f", {key}={value}" for key, value in model["options"].items())


def seeds(runs: Iterable[Run]) -> str:
    """Return the seeds of some runs."""
    return ", ".join(str(seed) for seed in sorted({run["seed"] for run in runs}))


def device(run: Run) -> str:
    """Return where a run was measured."""
    where = run["hardware"]
    return str(where.get("gpu") or f"{where['threads']} thread(s) of a CPU ({where['cpu']})")
