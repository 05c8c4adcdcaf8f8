"""What the kernels and the models were to reach, beside what was measured: misses are shown as such."""

import operator
from collections.abc import Callable, Iterator
from typing import Any

from orchid.bench.runtime import best_attention
from orchid.report.markdown import markdown_table

Row = dict[str, Any]
KEYS = {"forward_ms": "forward", "forward_backward_ms": "forward + backward"}
LONG, TOKENS = 131_072, 131_072
# Of training throughput, times the model with attention, by tokens.
MODELS = {
    "vit": ("Orchid-ViT", "ViT", {64: 1.0, 256: 1.0, 1024: 2.0}),
    "bert": ("orchid-bert-base", "bert-base", {128: 1.0, 1024: 1.5, 8192: 4.0}),
}
MOST: dict[str, Callable[[float, float], bool]] = {"at most": operator.le, "at least": operator.ge}


def goals_table(benchmark: Row | None, models: list[Row]) -> str:
    """Return every goal with what was wanted and measured; "" where nothing was measured."""
    lines = []
    for what, bound, wanted, measured, unit in [*_of_layers(benchmark), *_of_models(models)]:
        kept = "yes" if MOST[bound](measured, wanted) else "**missed**"
        lines.append([what, f"{bound} {wanted:g}{unit}", f"{measured:.2f}{unit}", kept])
    if not lines:
        return ""
    caption = (
        "What was to be reached by a layer of 768 channels in bfloat16 and by whole models in training, beside the "
        "least favourable case of the tables above."
    )
    return f"{caption}\n\n{markdown_table(['goal', 'wanted', 'measured', 'kept'], lines)}"


def _of_layers(benchmark: Row | None) -> Iterator[tuple[str, str, float, float, str]]:
    rows = [] if benchmark is None else benchmark["rows"]
    layers = [row for row in rows if row["timed"] == "layer" and _is(row, "triton")]
    torchs = {(row["batch"], row["length"]): row for row in rows if row["timed"] == "layer" and _is(row, "torch")}
    long = next((row for row in layers if (row["batch"], row["length"]) == (1, LONG)), None)
    if long is not None:
        for (key, name), wanted in zip(KEYS.items(), (4.0, 14.0), strict=True):
            yield f"1 x {LONG:,}, {name}", "at most", wanted, long[key], " ms"
            if (base := best_attention(rows, long, key)) is not None:
                yield f"1 x {LONG:,}, {name}, times attention's speed", "at least", 28, base / long[key], "x"
        if (plain := torchs.get((1, LONG))) is not None:
            share = long["peak_mib"] / plain["peak_mib"]
            yield f"1 x {LONG:,}, share of the torch backend's memory", "at most", 0.5, share, ""
    alone = [row for row in layers if row["batch"] == 1 and row["length"] >= 4096]
    if ratios := _ratios(rows, alone, KEYS):
        yield "batch 1 from 4,096 on, times attention's speed", "at least", 1, min(ratios), "x"
    short = [row for row in layers if row["length"] in (128, 256, 1024) and row["batch"] * row["length"] == TOKENS]
    if ratios := _ratios(rows, short, KEYS):
        what = f"{TOKENS:,} tokens in rows of 128, 256, 1,024, times attention's time"
        yield what, "at most", 1.3, 1 / min(ratios), "x"
    for row in (row for row in layers if (row["batch"], row["length"]) == (64, 2048)):
        for (key, name), wanted in zip(KEYS.items(), (2.4, 9.0), strict=True):
            yield f"64 x 2,048, {name}", "at most", wanted, row[key], " ms"
    faster = [
        torchs[row["batch"], row["length"]][key] / row[key]
        for row in layers
        if row["length"] >= 1024 and (row["batch"], row["length"]) in torchs
        for key in KEYS
    ]
    if faster:
        yield "from 1,024 on, times the torch backend's speed in the same run", "at least", 3, min(faster), "x"
    mixers = [row["forward_ms"] for row in rows if row["timed"] == "mixer" and _is(row, "triton") and _many(row)]
    if mixers:
        yield f"the mixer alone, {TOKENS:,} tokens in rows to 8,192, forward", "at most", 0.9, max(mixers), " ms"


def _is(row: Row, backend: str) -> bool:
    return (row["mixer"], row["backend"], row["dtype"]) == ("orchid", backend, "bfloat16")


def _many(row: Row) -> bool:
    return bool(row["length"] <= 8192 and row["batch"] * row["length"] == TOKENS)


def _ratios(rows: list[Row], own: list[Row], keys: dict[str, str]) -> list[float]:
    """Return how many times attention's speed every one of some rows has, forward and with backward."""
    pairs = [(best_attention(rows, row, key), row[key]) for row in own for key in keys]
    return [base / time for base, time in pairs if base is not None]


def _of_models(models: list[Row]) -> Iterator[tuple[str, str, float, float, str]]:
    rows = [row for benchmark in models for row in benchmark["models"] if not row.get("compiled")]
    speeds = {(row["family"], row["model"], row["length"]): row["per_second"] for row in rows}
    for family, (ours, theirs, wanted) in MODELS.items():
        for length, least in wanted.items():
            pair = [speeds.get((family, model, length)) for model in (ours, theirs)]
            if pair[0] is not None and pair[1] is not None:
                what = f"{ours} at {length:,} tokens, times {theirs}'s training speed"
                yield what, "at least", least, pair[0] / pair[1], "x"
