"""RESULTS.md, its figures and the README's table, rendered from the JSON files of measured runs."""

from pathlib import Path
from typing import Any

from orchid.files import atomic
from orchid.report.bert import bert_sections, draw_mlm
from orchid.report.goals import goals_table
from orchid.report.readme import readme_part
from orchid.report.recall import fused_table, recall_sections
from orchid.report.recall_figures import draw_recall
from orchid.report.results import Results, load_results
from orchid.report.runtime import (
    before_of,
    mixer_table,
    models_table,
    runtime_table,
    runtime_title,
    skipped_list,
    torch_table,
    training_table,
)
from orchid.report.runtime_figure import PICTURE, draw_runtime, drawn_of
from orchid.report.vision import vision_sections

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
INTRODUCTION = (
    "Rendered by `orchid report` from the JSON files under `results/`. Every file names its commit and hardware, "
    "a run's also its configuration and seed. No number is typed by hand."
)


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
        _write(readme, f"{before}{BEGIN}\n{readme_part(found)}\n{END}{after}")
        written.append(readme)
    return written


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
    goals = [f"## Goals and misses\n\n{table}"] if (table := goals_table(drawn, results.models)) else []
    return [
        *recall_sections(results.runs, results.tuning),
        *speed,
        *fused,
        *runtime,
        *whole,
        *goals,
        *language,
        *vision_sections(results.vision),
    ]


def _runtime_section(benchmark: dict[str, Any], before: dict[str, Any] | None, *, drawn: bool) -> str:
    parts = [f"## {runtime_title(benchmark)}", runtime_table(benchmark), mixer_table(benchmark)]
    if drawn:
        parts += [torch_table(benchmark, before), PICTURE]
    parts.append(skipped_list(benchmark))
    return "\n\n".join(part for part in parts if part)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as temporary:
        temporary.write_text(text)
