"""RESULTS.md and the README's table, rendered from the JSON files of measured runs; no number is typed by hand."""

import json
import math
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from orchid.train.run_folder import atomic

PASS = 0.99
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def write_report(results: Path, out: Path) -> list[Path]:
    """Write ``out``/RESULTS.md, and the marked part of ``out``/README.md if there is one; return what was written."""
    if not results.is_dir():
        raise ValueError(f"{results} is not a folder of results")
    runs, benchmarks = load_results(results)
    report, readme = out / "RESULTS.md", out / "README.md"
    sections = ["# Results", INTRODUCTION, *_sections(runs, benchmarks)]
    _write(report, "\n\n".join(sections) + "\n")
    written = [report]
    if readme.is_file() and BEGIN in readme.read_text():
        before, _, rest = readme.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        table = "\n\n".join(_sections(runs, benchmarks, short=True))
        _write(readme, f"{before}{BEGIN}\n{table}\n{END}{after}")
        written.append(readme)
    return written


INTRODUCTION = (
    "Rendered by `orchid report` from the JSON files under `results/`, each of which holds its configuration, seed, "
    "commit and hardware."
)


def load_results(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the runs and the benchmarks kept under ``folder``."""
    runs, benchmarks = [], []
    for path in sorted(folder.rglob("*.json")):
        try:
            data = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is damaged and cannot be read ({error})") from None
        if "rows" in data:
            benchmarks.append(data)
        elif "recipe" in data:
            runs.append(data)
        else:
            raise ValueError(f"{path} is neither the result of a run nor a benchmark")
    return runs, benchmarks


def _sections(runs: list[dict[str, Any]], benchmarks: list[dict[str, Any]], short: bool = False) -> list[str]:
    """Return the sections; ``short`` leaves out headings and the details of every vocabulary."""
    for run in runs:
        if run["recipe"].partition("/")[0] != "recall":
            raise ValueError(f"there is no table for results of recipe {run['recipe']!r}")
    sections = []
    vocabulary = [run for run in runs if run["recipe"].startswith("recall/v")]
    if vocabulary:
        title = "" if short else "## Associative recall over the vocabulary (table icl2)\n\n"
        sections.append(title + _vocabulary_table(vocabulary))
    shown = [run for run in runs if not short or run not in vocabulary]
    for group in _grouped(
        shown, lambda run: (run["config"]["task"], run["steps"], run["config"]["train"]["batch_size"])
    ):
        sections.append(("" if short else "## Associative recall, in detail\n\n") + _recall_table(group))
    for benchmark in benchmarks:
        sections.append(("" if short else "## Runtime of a layer\n\n") + _runtime_table(benchmark))
    return sections


def _grouped(runs: list[dict[str, Any]], key: Callable[[dict[str, Any]], Any]) -> list[list[dict[str, Any]]]:
    """Return the runs in groups of equal keys, in order of appearance."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(json.dumps(key(run), sort_keys=True), []).append(run)
    return list(groups.values())


def _model_name(run: dict[str, Any]) -> str:
    model = run["config"]["model"]
    return str(model["mixer"]) + "".join(f", {k}={v}" for k, v in model["options"].items())


def _vocabulary_table(runs: list[dict[str, Any]]) -> str:
    """Return accuracies by model and vocabulary size, ours beside the paper's; a cell not run stays empty."""
    sizes = sorted({run["config"]["task"]["vocab_size"] for run in runs})
    rows = []
    for same in _grouped(runs, _model_name):
        cells = [_model_name(same[0])]
        for size in sizes:
            cell = [run for run in same if run["config"]["task"]["vocab_size"] == size]
            cells += [_spread([100 * run["metrics"]["test/accuracy"] for run in cell]) if cell else ""]
            cells += [_spread([steps_to(run, PASS) for run in cell], "{:,.0f}") if cell else ""]
            paper = {run["paper"]["test/accuracy"] for run in cell if run["paper"]}
            cells += ["-" if not paper else f"{100 * paper.pop():.1f}"]
        rows.append(cells)
    rows.sort(key=lambda row: (not row[0].startswith("orchid"), row[0]))
    first = runs[0]
    task, where = first["config"]["task"], first["hardware"]
    caption = (
        f"Associative recall, length {task['length']}, training signal `{task['signal']}`, {first['steps']:,} steps of "
        f"{first['config']['train']['batch_size']}, right answers in %, mean over the seeds ({_seeds(runs)}) and the "
        f"range, on {where.get('gpu') or where['cpu']} (the paper does not state its training signal):"
    )
    header = ["model", *(text for size in sizes for text in (f"vocabulary {size}", f"steps to {PASS:.0%}", "paper"))]
    return f"{caption}\n\n{_markdown(header, rows)}"


def _seeds(runs: list[dict[str, Any]]) -> str:
    return ", ".join(str(seed) for seed in sorted({run["seed"] for run in runs}))


def _recall_table(runs: list[dict[str, Any]]) -> str:
    """Return one table of runs on the same task with the same steps; a row is one configuration over its seeds."""
    first, rows = runs[0], []
    for same in _grouped(runs, lambda run: {k: v for k, v in run["config"].items() if k != "seed"}):
        name, scores = _model_name(same[0]), [100 * run["metrics"]["test/accuracy"] for run in same]
        passed = _spread([steps_to(run, PASS) for run in same], "{:.0f}")
        seconds = statistics.mean(run["seconds"] for run in same)
        cells = [name, _spread(scores), passed, str(len(same)), f"{same[0]['parameters']:,}", f"{seconds:.0f}"]
        rows.append((statistics.mean(scores), cells))
    rows.sort(key=lambda row: row[0], reverse=True)
    guess = statistics.mean(100 * run["metrics"]["test/best_guess"] for run in runs)
    task, where = first["config"]["task"], first["hardware"]
    device = where.get("gpu") or f"{where['threads']} thread(s) of a CPU ({where['cpu']})"
    caption = (
        f"Associative recall, vocabulary {task['vocab_size']}, length {task['length']}, training signal "
        f"`{task['signal']}`, {first['steps']} steps of {first['config']['train']['batch_size']}, on {device}; "
        "mean over the seeds, and the range:"
    )
    header = ["model", "right answers (%)", f"steps to {PASS:.0%}", "seeds", "parameters", "seconds"]
    guesser = ["best guess that only knows which values occur", f"{guess:.1f}", "", "", "", ""]
    return f"{caption}\n\n{_markdown(header, [*(cells for _, cells in rows), guesser])}"


def _runtime_table(benchmark: dict[str, Any]) -> str:
    rows, facts = benchmark["rows"], benchmark["hardware"]
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
    where = facts.get("gpu") or f"{facts['threads']} threads of a CPU ({facts['cpu']})"
    caption = (
        f"Whole layer, d_model {rows[0]['d_model']}, batch {rows[0]['batch']}, {rows[0]['dtype']}, on {where}, "
        "milliseconds and how many times faster than attention in the same run:"
    )
    header = ["length", "mixer", "forward", "attention", "faster", "forward + backward", "attention", "faster"]
    return f"{caption}\n\n{_markdown(header, lines)}"


def steps_to(run: dict[str, Any], accuracy: float) -> float:
    """Return the step of the first evaluation at or above an accuracy, or infinity."""
    passed = [entry["step"] for entry in run["history"] if entry["test/accuracy"] >= accuracy]
    return float(passed[0]) if passed else math.inf


def _spread(values: list[float], form: str = "{:.1f}") -> str:
    """Return the mean, and the range where there is one; infinite values were not reached and are counted."""
    reached = [value for value in values if value != math.inf]
    if not reached:
        return "not reached"
    mean, low, high = (form.format(value) for value in (statistics.mean(reached), min(reached), max(reached)))
    text = mean if low == high else f"{mean} ({low} to {high})"
    missed = len(values) - len(reached)
    return f"{text}; {missed} of {len(values)} not" if missed else text


def _markdown(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _write(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text)
