"""Runtime of whole layers, forward and forward + backward, every mixer in turn within one run."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from orchid.mixers.registry import create_mixer, list_mixers
from orchid.ops.checks import check_at_least
from orchid.train.environment import commit, hardware
from orchid.train.run_folder import write_json

ROUNDS = 5
WARMUP = 2


def parse_lengths(text: str) -> list[int]:
    """Return the lengths of "512,1024"."""
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--lengths {text!r} must be whole numbers, comma separated") from None
    if min(lengths) < 1:
        raise ValueError(f"--lengths {text!r} must be at least 1")
    return lengths


def run_benchmark(
    console: Console,
    lengths: list[int],
    d_model: int,
    batch: int,
    mixers: list[str] | None,
    json_file: Path | None,
    *,
    cpu: bool,
) -> list[dict[str, Any]]:
    """Time every mixer at every length, show the table and the ratios to attention, and keep the rows."""
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    check_at_least("--batch", batch, 1)
    names = mixers or list_mixers()
    rows: list[dict[str, Any]] = []
    with console.status("timing") as status:
        for length in lengths:
            status.update(f"timing length {length}")
            rows += _time_length(names, length, d_model, batch, device)
    console.print(_table(rows))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        facts = hardware(device) | {"torch": torch.__version__, "commit": commit()}
        write_json(json_file, {"hardware": facts, "rows": rows})
        console.print(f"wrote {json_file}")
    return rows


def _time_length(names: list[str], length: int, d_model: int, batch: int, device: torch.device) -> list[dict[str, Any]]:
    """Time the mixers in turn, round after round, so that a busy machine slows all of them alike."""
    x = torch.randn(batch, length, d_model, device=device, requires_grad=True)
    layers = {name: create_mixer(name, d_model, length).to(device) for name in names}
    times: dict[tuple[str, str], list[float]] = {}
    for turn in range(WARMUP + ROUNDS):
        for name, layer in layers.items():
            for kind, function in (("forward", _forward), ("forward_backward", _forward_backward)):
                elapsed = _timed(function, layer, x)
                if turn >= WARMUP:
                    times.setdefault((name, kind), []).append(elapsed)
    return [
        {
            "mixer": name,
            "backend": getattr(layer, "backend", "torch").replace("auto", "torch"),
            "dtype": "float32",
            "batch": batch,
            "length": length,
            "d_model": d_model,
            "timed": "layer",
            "timing": "events" if device.type == "cuda" else "clock",
            "forward_ms": round(statistics.median(times[name, "forward"]), 4),
            "forward_backward_ms": round(statistics.median(times[name, "forward_backward"]), 4),
            "peak_mib": _peak_mib(layer, x),
        }
        for name, layer in layers.items()
    ]


def _forward(layer: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        layer(x)


def _forward_backward(layer: nn.Module, x: torch.Tensor) -> None:
    layer.zero_grad(set_to_none=True)
    x.grad = None
    layer(x).sum().backward()


def _timed(function: Callable[[nn.Module, torch.Tensor], None], layer: nn.Module, x: torch.Tensor) -> float:
    """Return milliseconds."""
    if x.device.type != "cuda":
        began = time.perf_counter()
        function(layer, x)
        return 1e3 * (time.perf_counter() - began)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    function(layer, x)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def _peak_mib(layer: nn.Module, x: torch.Tensor) -> float | None:
    """Return the peak memory of forward + backward above what was held before; CPUs do not tell."""
    if x.device.type != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    _forward_backward(layer, x)
    return round((torch.cuda.max_memory_allocated() - before) / 2**20, 1)


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="milliseconds, and how many times faster than attention", box=None, padding=(0, 2, 0, 0))
    for column in ("length", "mixer", "forward", "forward + backward", "faster", "faster, with backward"):
        table.add_column(column, justify="left" if column == "mixer" else "right")
    base = {row["length"]: row for row in rows if row["mixer"] == "attention"}
    for row in rows:
        attention = base.get(row["length"])
        ratios = ["-", "-"]
        if attention is not None:
            ratios = [f"{attention[key] / row[key]:.2f}x" for key in ("forward_ms", "forward_backward_ms")]
        cells = [f"{row['forward_ms']:.2f}", f"{row['forward_backward_ms']:.2f}"]
        table.add_row(str(row["length"]), row["mixer"], *cells, *ratios)
    return table
