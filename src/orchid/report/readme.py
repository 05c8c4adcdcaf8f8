"""The README's part that is measured: the least that tells how fast and how good, wins and losses alike."""

from typing import Any

from orchid.bench.runtime import best_attention
from orchid.report.bert import glue_results_table, mlm_table
from orchid.report.markdown import device
from orchid.report.recall import vocabulary_row_table
from orchid.report.results import Results
from orchid.report.runtime import runtime_table
from orchid.report.runtime_figure import PICTURE, drawn_of
from orchid.report.vision import image_table

# Batches and lengths that tell the whole story: short and long, one sequence and many.
CASES = ((1, 1024), (1, 8192), (1, 131072), (1, 2**20), (1024, 128), (64, 2048))
VOCABULARY = 40
KERNELS = ("orchid", "triton")


def readme_part(results: Results) -> str:
    """Return the README's tables, each under its title; what was not run is left to RESULTS.md."""
    drawn = drawn_of(results.benchmarks)
    speed = [] if drawn is None else [speed_sentence(drawn), PICTURE, runtime_table(drawn, KERNELS, CASES)]
    tables = {
        "Speed": speed,
        "Associative recall": [vocabulary_row_table(results.runs, VOCABULARY)],
        "Language": [mlm_table(results.mlm), glue_results_table(results.glue)],
        "Images": [image_table(results.vision, images, whole=False) for images in ("cifar10", "imagenette")],
    }
    parts = []
    for title, texts in tables.items():
        if found := [text for text in texts if text]:
            parts += [f"### {title}", *found]
    return "\n\n".join(parts)


def speed_sentence(benchmark: dict[str, Any]) -> str:
    """Say how many times faster than attention the longest sequence is, and how fast the worst case is."""
    rows = [row for row in benchmark["rows"] if row["timed"] == "layer"]
    ours = [row for row in rows if (row["mixer"], row["backend"]) == KERNELS]
    keys = {"forward_ms": "forward", "forward_backward_ms": "forward and backward"}
    ratios = {
        (row["batch"], row["length"], key): base / row[key]
        for row in ours
        for key in keys
        if (base := best_attention(rows, row, key)) is not None
    }
    if not ratios:
        return ""
    longest = max(length for batch, length, _ in ratios if batch == 1)
    forward, both = (ratios[1, longest, key] for key in keys)
    (batch, length, key), least = min(ratios.items(), key=lambda item: item[1])
    return (
        f"At {longest:,} tokens a layer of {ours[0]['d_model']} channels takes **1/{forward:.0f} of the time** of "
        f"PyTorch's fastest attention forward and 1/{both:.0f} forward and backward ({device(benchmark)}, "
        f"{ours[0]['dtype']}). Its worst case is {batch:,} x {length:,}, {keys[key]}: {least:.1f} times "
        "attention's speed."
    )
