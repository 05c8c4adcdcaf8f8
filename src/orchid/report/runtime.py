"""The tables of speed: layers against attention, and training steps."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from orchid.bench.runtime import best_attention
from orchid.report.markdown import PASS, Run, device, markdown_table, steps_to


def runtime_title(benchmark: dict[str, Any]) -> str:
    """Return where layers were timed, and beside what of other packages or projects."""
    others = sorted({row["mixer"] for row in benchmark["rows"]} - {"orchid", "attention"})
    return f"Runtime of a layer on {device(benchmark)}" + (f", beside {', '.join(others)}" if others else "")


def runtime_table(
    benchmark: dict[str, Any],
    entry: tuple[str, str] | None = None,
    cases: Sequence[tuple[int, int]] | None = None,
) -> str:
    """Return times of layers and how many times as fast as the fastest attention of the same case they are.

    ``entry``, a mixer and its backend, keeps the table to it, beside the attention it is compared with; ``cases`` to
    some batches and lengths.
    """
    rows = [row for row in benchmark["rows"] if row["timed"] == "layer"]
    lines = []
    for row in rows:
        if row["mixer"] == "attention" or (entry is not None and (row["mixer"], row["backend"]) != entry):
            continue
        if cases is not None and (row["batch"], row["length"]) not in cases:
            continue
        named = [] if entry else [f"{row['mixer']} ({row['backend']}, {row['dtype']})"]
        cells = [f"{row['batch']} x {row['length']:,}", *named]
        for key in ("forward_ms", "forward_backward_ms"):
            base = best_attention(rows, row, key)
            cells += [
                _time(row[key]),
                "-" if base is None else _time(base),
                "-" if base is None else f"{base / row[key]:.1f}x",
            ]
        peaks = row["peak_mib"], None if row["peak_mib"] is None else best_attention(rows, row, "peak_mib")
        lines.append([*cells, *("-" if peak is None else f"{peak:,.0f}" for peak in peaks)])
    which = f", {' ('.join(entry)}, {rows[0]['dtype']})" if entry else ""
    caption = (
        f"Whole layer{which}, {rows[0]['d_model']} channels, on {device(benchmark)}, commit {_commit(benchmark)}: "
        "milliseconds, and how many times as fast as the fastest attention of the same run (flash, cuDNN or unfused). "
        "Forward is prediction after `freeze()`, which computes the static kernel once; memory is the peak of forward "
        f"and backward{_how(rows)}."
    )
    header = [
        "batch x length",
        *([] if entry else ["mixer"]),
        "forward",
        "attention",
        "speed-up",
        "forward + backward",
        "attention",
        "speed-up",
        "MiB",
        "attention",
    ]
    return "\n\n".join([caption, markdown_table(header, lines), *benchmark.get("remarks", ())])


def mixer_table(benchmark: dict[str, Any]) -> str:
    """Return times of what stands between Orchid's projections, alone; empty where kernels were not timed."""
    rows = [row for row in benchmark["rows"] if row["timed"] == "mixer"]
    slow = {(r["batch"], r["length"], r["dtype"]): r for r in rows if r["backend"] == "torch"}
    lines = []
    for row in rows:
        base = slow.get((row["batch"], row["length"], row["dtype"]))
        if row["backend"] == "torch":
            continue
        cells = [f"{row['batch']} x {row['length']:,}"]
        for key in ("forward_ms", "forward_backward_ms"):
            ratio = ["-", "-"] if base is None else [_time(base[key]), f"{base[key] / row[key]:.1f}x"]
            cells += [_time(row[key]), *ratio]
        lines.append(cells)
    if not lines:
        return ""
    header = ["batch x length", "forward", "torch", "faster", "forward + backward", "torch", "faster"]
    caption = (
        "Orchid's mixer alone, between its two projections, milliseconds, beside the torch backend in the same type:"
    )
    return f"{caption}\n\n{markdown_table(header, lines)}"


def before_of(benchmarks: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the benchmark of Orchid on the torch backend alone, on a GPU: what the kernels began with."""
    own = {("orchid", "torch")}
    of_torch = (b for b in benchmarks if {(row["mixer"], row["backend"]) for row in b["rows"]} == own)
    return next((b for b in of_torch if b["hardware"].get("gpu")), None)


def torch_table(benchmark: dict[str, Any], before: dict[str, Any] | None) -> str:
    """Return how many times as fast the kernels' layer is as the torch backend's, now and before there were kernels."""
    keys = ("forward_ms", "forward_backward_ms")

    def layers(of: dict[str, Any] | None, backend: str) -> dict[tuple[int, int], dict[str, Any]]:
        rows = [] if of is None else of["rows"]
        wanted = {"timed": "layer", "backend": backend, "dtype": "bfloat16"}
        return {(r["batch"], r["length"]): r for r in rows if all(r[key] == value for key, value in wanted.items())}

    now, then = layers(benchmark, "torch"), layers(before, "torch")
    lines = []
    for case, row in layers(benchmark, "triton").items():
        cells = [f"{case[0]} x {case[1]:,}"]
        for key in keys:
            bases = [base.get(case) for base in (now, then)]
            cells += [_time(row[key]), *("-" if base is None else f"{base[key] / row[key]:.1f}x" for base in bases)]
        lines.append(cells)
    if before is None or not lines:
        return ""
    caption = (
        "Whole layer, bfloat16, milliseconds by the kernels and how many times faster than the torch backend in the "
        f"same run (now), and than it was before there were kernels (commit {_commit(before)}, on the same GPU):"
    )
    columns = ["now", "before"]
    header = ["batch x length", "forward", *columns, "forward + backward", *columns]
    return f"{caption}\n\n{markdown_table(header, lines)}"


def skipped_list(benchmark: dict[str, Any]) -> str:
    """Return what was not timed, and why."""
    reasons: dict[str, list[str]] = {}
    for case in benchmark.get("skipped", ()):
        name = f"{case['mixer']} ({case['backend']}): {case['reason']}"
        reasons.setdefault(name, []).append(f"{case['batch']} x {case['length']:,}")
    return "\n".join(f"- not timed: {name} ({', '.join(cases)})" for name, cases in reasons.items())


def _how(rows: list[dict[str, Any]]) -> str:
    """Say which rows are free of the time that launches take."""
    replayed = [row["length"] for row in rows if row["timing"] == "graph"]
    return (
        f". Up to length {max(replayed):,} calls are replayed as CUDA graphs, longer ones launched from Python"
        if replayed
        else ""
    )


def _commit(benchmark: dict[str, Any]) -> str:
    commit: str = benchmark["hardware"].get("commit") or "unknown"
    return commit[:7]


def _time(milliseconds: float) -> str:
    return f"{milliseconds:.3f}" if milliseconds < 10 else f"{milliseconds:.1f}"


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


def models_table(benchmark: dict[str, Any]) -> str:
    """Return tokens or images a second of whole models, and how many times the one with attention's.

    Compiled models stand beside the compiled one with attention, others beside the other.
    """
    attention = {"bert": "bert-base", "vit": "ViT"}
    rows = [{"compiled": False, **row} for row in benchmark["models"]]
    speeds = {(r["family"], r["length"], r["model"], r["compiled"]): r["per_second"] for r in rows}
    several, lines = any(row["compiled"] for row in rows), []
    for row in rows:
        base = speeds.get((row["family"], row["length"], attention[row["family"]], row["compiled"]))
        ratio = "-" if base is None else f"{row['per_second'] / base:.2f}x"
        peak = "-" if row["peak_mib"] is None else f"{row['peak_mib']:,.0f}"
        size = f"{row['batch']} x {row['length']:,}"
        speed = f"{row['per_second']:,.0f} {row['unit']}"
        form = ["yes" if row["compiled"] else "no"] if several else []
        count = f"{row['parameters'] / 1e6:.1f} M"
        lines.append([row["model"], count, *form, size, f"{row['step_ms']:.2f}", speed, ratio, peak])
    where = f"{device(benchmark)}, commit {_commit(benchmark)}"
    caption = f"Forward and backward of whole models, {rows[0]['dtype']}, one process alone on {where}:"
    form = ["compiled"] if several else []
    header = ["model", "parameters", *form, "batch x tokens", "ms a step", "a second", "of attention's", "MiB"]
    return f"{caption}\n\n{markdown_table(header, lines)}"
