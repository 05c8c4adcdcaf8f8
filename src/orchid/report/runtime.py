"""The tables of speed: layers against attention, and training steps."""

import math
import statistics
from typing import Any

from orchid.report.markdown import PASS, Run, device, markdown_table, steps_to


def runtime_table(benchmark: dict[str, Any]) -> str:
    """Return times and how many times faster than attention in the same run, by length and mixer."""
    rows = benchmark["rows"]
    attention = {row["length"]: row for row in rows if row["mixer"] == "attention"}
    lines = []
    for row in rows:
        base = attention.get(row["length"])
        if row["mixer"] == "attention" or base is None:
            continue
        cells = [f"{row['length']:,}", row["mixer"]]
        for key in ("forward_ms", "forward_backward_ms"):
            cells += [f"{row[key]:.1f}", f"{base[key]:.1f}", f"{base[key] / row[key]:.1f}x"]
        lines.append(cells)
    caption = (
        f"Whole layer, d_model {rows[0]['d_model']}, batch {rows[0]['batch']}, {rows[0]['dtype']}, on "
        f"{device(benchmark)}, milliseconds and how many times faster than attention in the same run:"
    )
    header = ["length", "mixer", "forward", "attention", "faster", "forward + backward", "attention", "faster"]
    return f"{caption}\n\n{markdown_table(header, lines)}"


def training_table(benchmark: dict[str, Any], runs: list[Run]) -> str:
    """Return steps a second, the share of making a batch, and the minutes that kept runs need to 99 % at that speed."""
    lines = []
    for row in benchmark["training"]:
        task, train = row["task"], row["train"]
        steps = [steps_to(run, PASS) for run in runs if run["recipe"] == row["recipe"]]
        reached = [step for step in steps if step != math.inf]
        minutes = f"{statistics.mean(reached) * row['step_ms'] / 60e3:.2f}" if reached else "-"
        how = "compiled, replayed" if train["compile"] else "replayed" if train["graph"] else "eager"
        cells = [f"`{row['recipe']}`", f"{train['batch_size']} x {task['length']:,}", how, f"{row['step_ms']:.2f}"]
        share = f"{100 * row['batch_ms'] / row['step_ms']:.1f} %"
        lines.append([*cells, f"{1e3 / row['step_ms']:,.0f}", f"{row['batch_ms']:.3f}", share, minutes])
    caption = (
        f"One process alone on {device(benchmark)}; a batch is made on the same device, beside the step before it."
    )
    header = ["recipe", "batch", "step is", "ms a step", "steps/s", "ms a batch", "its share", f"minutes to {PASS:.0%}"]
    return f"{caption}\n\n{markdown_table(header, lines)}"
