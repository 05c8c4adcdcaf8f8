"""RESULTS.md, its figures and the README's table, rendered from the JSON files of measured runs."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchid.files import atomic
from orchid.report.bert import bert_sections, draw_mlm, mlm_table
from orchid.report.markdown import Run
from orchid.report.recall import demo_table, fused_table, length_table, recall_sections, vocabulary_table
from orchid.report.recall_figures import draw_recall
from orchid.report.runtime import (
    before_of,
    mixer_table,
    models_table,
    runtime_table,
    skipped_list,
    torch_table,
    training_table,
)
from orchid.report.runtime_figure import FIGURE, draw_runtime, drawn_of
from orchid.report.vision import image_table, vision_sections

# The folder of runs that were trained through the fused kernels.
KERNELS = "kernels"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
INTRODUCTION = (
    "Rendered by `orchid report` from the JSON files under `results/`, each of which holds its configuration, seed, "
    "commit and hardware. No number is typed by hand."
)


@dataclass
class Results:
    """What is kept under a folder of results."""

    runs: list[Run] = field(default_factory=list)
    benchmarks: list[dict[str, Any]] = field(default_factory=list)
    tuning: list[dict[str, Any]] = field(default_factory=list)
    training: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    fused: list[Run] = field(default_factory=list)  # the same recipes, trained through the kernels
    mlm: list[Run] = field(default_factory=list)
    vision: list[Run] = field(default_factory=list)
    glue: dict[str, list[Run]] = field(default_factory=dict)  # by the pre-trained model: their folder's name


def write_report(results: Path, out: Path) -> list[Path]:
    """Write RESULTS.md, its figures and the marked part of README.md under ``out``; return what was written."""
    if not results.is_dir():
        raise ValueError(f"{results} is not a folder of results")
    found = load_results(results)
    report, readme = out / "RESULTS.md", out / "README.md"
    _write(report, "\n\n".join(["# Results", INTRODUCTION, *_sections(found)]) + "\n")
    assets = out / "docs" / "assets"
    written = [report, *draw_recall(found.runs, assets), *draw_runtime(found.benchmarks, assets)]
    written += draw_mlm(found.mlm, assets)
    if readme.is_file() and BEGIN in readme.read_text():
        before, _, rest = readme.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        _write(readme, f"{before}{BEGIN}\n{_summary(found)}\n{END}{after}")
        written.append(readme)
    return written


def load_results(folder: Path) -> Results:
    """Return what is kept under ``folder``."""
    results = Results()
    for path in sorted(folder.rglob("*.json")):
        try:
            data = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path} is damaged and cannot be read ({error})") from None
        if "rows" in data:
            results.benchmarks.append(data)
        elif "training" in data:
            results.training.append(data)
        elif "models" in data:
            results.models.append(data)
        elif "tuning" in data:
            results.tuning += data["tuning"]
        elif "recipe" in data:
            if data["recipe"].startswith("recall/"):
                (results.fused if path.parent.name == KERNELS else results.runs).append(data)
            elif data["recipe"].startswith("bert/mlm-"):
                results.mlm.append(data)
            elif data["recipe"].startswith("bert/glue-"):
                results.glue.setdefault(path.parent.name, []).append(data)
            elif data["recipe"].startswith("vision/"):
                results.vision.append(data)
            else:
                raise ValueError(f"there is no table for results of recipe {data['recipe']!r}, in {path}")
        else:
            raise ValueError(f"{path} is neither the result of a run nor a benchmark")
    return results


def _sections(results: Results) -> list[str]:
    drawn, before = drawn_of(results.benchmarks), before_of(results.benchmarks)
    shown = [benchmark for benchmark in results.benchmarks if benchmark is not before or benchmark is drawn]
    runtime = [_runtime_section(benchmark, before, drawn=benchmark is drawn) for benchmark in shown]
    speed = [f"## Training speed\n\n{training_table(data, results.runs)}" for data in results.training]
    fused = (
        [f"## Recall through the fused kernels\n\n{fused_table(results.fused, results.runs)}"] if results.fused else []
    )
    language = bert_sections(results.mlm, results.glue)
    tables = [models_table(data) for data in results.models]
    whole = ["\n\n".join(["## Training throughput of whole models", *tables])] if tables else []
    return [
        *recall_sections(results.runs, results.tuning),
        *speed,
        *fused,
        *runtime,
        *whole,
        *language,
        *vision_sections(results.vision),
    ]


def _runtime_section(benchmark: dict[str, Any], before: dict[str, Any] | None, *, drawn: bool) -> str:
    parts = ["## Runtime of a layer", runtime_table(benchmark), mixer_table(benchmark)]
    if drawn:
        parts += [torch_table(benchmark, before), _picture()]
    parts.append(skipped_list(benchmark))
    return "\n\n".join(part for part in parts if part)


def _picture() -> str:
    return f"![Time and memory over the length, beside the paper's](docs/assets/{FIGURE})"


def _summary(results: Results) -> str:
    """Return the README's tables."""
    demo = [run for run in results.runs if run["recipe"].startswith("recall/demo-")]
    drawn = drawn_of(results.benchmarks)
    runtime = [] if drawn is None else [f"{runtime_table(drawn, ('orchid', 'triton'))}\n\n{_picture()}"]
    images = image_table(results.vision, "cifar10", whole=False)
    tables = [vocabulary_table(results.runs), length_table(results.runs), demo_table(demo)]
    return "\n\n".join(table for table in [*tables, *runtime, mlm_table(results.mlm), images] if table)


def _write(path: Path, text: str) -> None:
    with atomic(path) as temporary:
        temporary.write_text(text)
