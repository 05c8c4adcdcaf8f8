"""Runtime and memory of whole layers against attention: what is wrong is not timed."""

import copy
import gc
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from orchid.bench.entries import Entry, list_entries
from orchid.bench.timing import milliseconds, peak_mib
from orchid.files import write_json
from orchid.nn.mixer import OrchidMixer
from orchid.nn.projections import to_channels
from orchid.ops.checks import check_at_least
from orchid.train.environment import commit, hardware

# Up to this length a GPU's time is launches as much as work: timed as a CUDA graph.
GRAPH_LENGTH = 16384
# Root mean square of the error over that of the float64 result: a few roundings of the type.
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
# Tokens of several short sequences that are compared with the reference: a batch takes other kernels than one alone.
CHECKED_TOKENS = 8192
# Beyond this length a layer of so many channels is compared: a float64 one of all of them would not fit.
CHECKED_WHOLE, CHECKED_CHANNELS = 131072, 16
# Batches of short sequences with as many tokens as the longest sequence that all entries are timed at.
TOKENS, SHORT = 131072, (128, 256, 512, 1024, 2048, 4096, 8192)


class Wrong(RuntimeError):
    """An entry whose output or gradient is not that of its reference."""


def parse_lengths(text: str) -> list[int]:
    """Return the lengths of "512,1024"."""
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--lengths {text!r} must be whole numbers, comma separated") from None
    if min(lengths) < 1:
        raise ValueError(f"--lengths {text!r} must be at least 1")
    return lengths


def default_cases(device: torch.device) -> tuple[list[tuple[int, int]], int]:
    """Return the (batch, length) pairs and d_model of the paper's figure on a GPU, smaller ones on a CPU."""
    if device.type != "cuda":
        return [(1, length) for length in (512, 1024, 2048, 4096, 8192)], 256
    long = [(1, 2**power) for power in range(10, 18)]
    return [*long, *((TOKENS // length, length) for length in SHORT), (1, 2**20)], 768


def run_benchmark(
    console: Console,
    *,
    lengths: list[int] | None,
    d_model: int | None,
    batch: int,
    mixers: list[str] | None,
    json_file: Path | None,
    cpu: bool,
) -> dict[str, Any]:
    """Time every entry in every case, show the table with its ratios to attention, and keep the rows."""
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    check_at_least("--batch", batch, 1)
    cases, width = default_cases(device)
    if lengths is not None:
        cases = [(batch, length) for length in lengths]
    width = width if d_model is None else check_at_least("--d-model", d_model, 1)
    entries = list_entries(device, mixers)
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    remarks = [entry.remark for entry in entries if entry.remark]
    for size, length in cases:
        for entry in (entry for entry in entries if lengths is not None or length <= entry.longest):
            case = {"batch": size, "length": length, "d_model": width}
            try:
                timed = _time_entry(entry, case, device)
                # A line when it is done and no spinner: its thread would take the interpreter from what is timed.
                console.print(_line(timed[0]), markup=False, highlight=False)
                rows += timed
            except entry.expected as error:  # out of memory, no such kernel: said, not hidden
                said = str(error).strip() or type(error).__name__
                reason = re.split(r"\. GPU \d", said.splitlines()[0])[0][:200]  # not what else the GPU holds
                skipped.append({"mixer": entry.mixer, "backend": entry.backend, **case, "reason": reason})
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
        if json_file is not None:  # what has been timed is kept, whatever happens to the rest
            _keep(json_file, rows, skipped, remarks, device)
    console.print(_table(rows))
    for case in skipped:
        console.print(
            f"not timed: {case['mixer']} ({case['backend']}), {case['batch']} x {case['length']}: {case['reason']}",
            markup=False,
        )
    if json_file is not None:
        console.print(f"wrote {json_file}")
    return _report(rows, skipped, remarks, device)


def _line(row: dict[str, Any]) -> str:
    """Return what has just been timed."""
    what = f"{row['batch']} x {row['length']:,} {row['mixer']} ({row['backend']}, {row['dtype']})"
    return f"{what}: {row['forward_ms']:.3f} ms forward, {row['forward_backward_ms']:.3f} with backward"


def _report(
    rows: list[dict[str, Any]], skipped: list[dict[str, Any]], remarks: list[str], device: torch.device
) -> dict[str, Any]:
    facts = hardware(device) | {"torch": torch.__version__, "commit": commit()}
    return {"hardware": facts, "rows": rows, "skipped": skipped, "remarks": remarks}


def _keep(
    file: Path, rows: list[dict[str, Any]], skipped: list[dict[str, Any]], remarks: list[str], device: torch.device
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, _report(rows, skipped, remarks, device))


def _time_entry(entry: Entry, case: dict[str, int], device: torch.device) -> list[dict[str, Any]]:
    """Return the rows of an entry: the layer, and for Orchid also what stands between its projections."""
    batch, length, d_model = case["batch"], case["length"], case["d_model"]
    torch.manual_seed(0)
    layer = entry.build(d_model, length).to(device, entry.dtype)
    x = torch.randn(batch, length, d_model, device=device, dtype=entry.dtype)
    if entry.checkable:
        checked, given = layer, x[: max(1, CHECKED_TOKENS // length), : entry.checked_length(length)]
        if length > CHECKED_WHOLE:
            checked = entry.build(CHECKED_CHANNELS, length).to(device, entry.dtype)
            given = given[..., :CHECKED_CHANNELS]
        check_entry(entry, checked, given)
    timed: dict[str, tuple[Callable[[Tensor], Tensor], Tensor, nn.Module]] = {"layer": (layer, x, layer)}
    if isinstance(layer, OrchidMixer):
        fused = layer._fused(x)
        projected = to_channels(layer.in_proj, x, biased=not fused).detach()
        between = layer._fused_mix if fused else layer._mix
        timed["mixer"] = (lambda p: between(p, None, None, None), projected, layer)
    rows = []
    for what, (function, given, module) in timed.items():
        wanted, graph = [given.clone().requires_grad_(), *module.parameters()], length <= GRAPH_LENGTH
        with torch.no_grad():
            dy = torch.ones_like(function(given))

        def forward_backward(
            function: Callable[[Tensor], Tensor] = function, wanted: list[Tensor] = wanted, dy: Tensor = dy
        ) -> None:
            torch.autograd.grad(function(wanted[0]), wanted, dy, allow_unused=True)

        # Forward alone is prediction: parameters frozen, what depends on them only computed once.
        module.freeze() if isinstance(module, OrchidMixer) else module.requires_grad_(False)
        with torch.no_grad():
            forward_ms = milliseconds(partial(function, given), device, graph=graph)
        module.unfreeze() if isinstance(module, OrchidMixer) else module.requires_grad_(True)
        both_ms = milliseconds(forward_backward, device, graph=graph)
        rows.append(
            {
                "mixer": entry.mixer,
                "backend": entry.backend,
                "dtype": str(entry.dtype).removeprefix("torch."),
                **case,
                "timed": what,
                "timing": "clock" if device.type != "cuda" else "graph" if graph else "events",
                "forward_ms": round(forward_ms, 4),
                "forward_backward_ms": round(both_ms, 4),
                "peak_mib": peak_mib(forward_backward, device),
            }
        )
    return rows


def check_entry(entry: Entry, layer: nn.Module, x: Tensor) -> None:
    """Compare output and input gradient with the layer's float64 copy on the torch backend; raise if they differ."""
    exact = copy.deepcopy(layer).double()
    for module in exact.modules():
        if isinstance(module, OrchidMixer):
            module.backend = "torch"
    results = []
    for module, given in ((layer, x), (exact, x.double())):
        leaf = given.detach().clone().requires_grad_()
        y = module(leaf)
        (grad,) = torch.autograd.grad(y.square().mean(), leaf)
        results.append((y.detach().double(), grad.double()))
        del y, grad
    for what, ours, theirs in zip(("output", "gradient"), *results, strict=True):
        error = float((ours - theirs).square().mean().sqrt() / theirs.square().mean().sqrt())
        if not error <= TOLERANCE[entry.dtype]:
            raise Wrong(f"its {what} is off by {error:.1e}: a wrong result is not timed")


def best_attention(rows: list[dict[str, Any]], row: dict[str, Any], key: str) -> float | None:
    """Return the time of the fastest attention of the same case, or None."""
    same = [
        other[key]
        for other in rows
        if other["mixer"] == "attention" and all(other[name] == row[name] for name in ("batch", "length", "d_model"))
    ]
    return min(same) if same else None


def _table(rows: list[dict[str, Any]]) -> Table:
    title = "milliseconds, and how many times faster than the fastest attention of the same run"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("batch x L", "mixer", "timed", "forward", "faster", "with backward", "faster", "MiB"):
        words = column in ("mixer", "timed")
        table.add_column(column, justify="left" if words else "right", no_wrap=column not in ("mixer", "with backward"))
    for row in rows:
        cells = [
            f"{row['batch']} x {row['length']:,}",
            f"{row['mixer']} ({row['backend']}, {row['dtype']})",
            row["timed"],
        ]
        for key in ("forward_ms", "forward_backward_ms"):
            base = best_attention(rows, row, key) if row["timed"] == "layer" else None
            cells += [f"{row[key]:.3f}", "" if base is None else f"{base / row[key]:.2f}x"]
        table.add_row(*cells, "" if row["peak_mib"] is None else f"{row['peak_mib']:,.0f}")
    return table
