"""Time and memory of a layer over its length, beside the paper's measurements (figure runtime_comparison)."""

from pathlib import Path
from typing import Any

from orchid.files import atomic

FIGURE = "runtime.png"
PICTURE = f"![Time and memory over the length, beside the paper's](docs/assets/{FIGURE})"

# The paper's figure: one A100, d_model 768, batch 1; Orchid and attention in float32, FlashAttention in float16; ms.
PAPER_LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "forward": {
        "Orchid": (1.291, 1.650, 3.170, 5.377, 10.984, 23.577, 52.989),
        "FlashAttention": (0.639, 0.491, 1.338, 4.399, 16.312, 63.661, 250.826),
        "attention": (1.235, 4.595, 16.355, 72.734),
    },
    "backward": {
        "Orchid": (3.031, 4.113, 7.552, 12.693, 27.503, 66.052, 150.543),
        "FlashAttention": (0.630, 1.132, 3.213, 10.746, 41.041, 162.569, 643.621),
        "attention": (1.677, 5.534, 21.084, 85.307),
    },
}
PAPER_COLOURS = {"Orchid": "#c2185b", "FlashAttention": "#212121", "attention": "#9e9e9e"}
COLOURS = {
    ("orchid", "triton"): "#c2185b",
    ("orchid", "torch"): "#f48fb1",
    ("attention", "flash"): "#212121",
    ("attention", "cudnn"): "#5d4037",
    ("attention", "unfused"): "#9e9e9e",
    ("mamba-2", "mamba_ssm"): "#f9a825",
}


def drawn_of(benchmarks: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the benchmark that the figure shows: on a GPU, of the most single sequences, then of the most cases."""
    return max((b for b in benchmarks if b["hardware"].get("gpu") and _extent(b)[0]), key=_extent, default=None)


def draw_runtime(benchmarks: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Draw the GPU benchmark into ``folder``; return the picture, if there is one."""
    drawn = drawn_of(benchmarks)
    if drawn is None:
        return []
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3)
    quantities = {
        "forward": lambda row: row["forward_ms"],
        "backward": lambda row: row["forward_backward_ms"] - row["forward_ms"],
        "memory": lambda row: row["peak_mib"],
    }
    titles = ("forward (ms)", "backward (ms)", "peak memory, forward + backward (MiB)")
    for panel, (name, value), title in zip(axes, quantities.items(), titles, strict=True):
        for (mixer, backend, dtype), rows in _lines(drawn).items():
            colour, label = COLOURS.get((mixer, backend)), f"{mixer} ({backend}, {dtype})"
            style = "--" if dtype == "float32" else "-"
            panel.plot(
                [r["length"] for r in rows], [value(r) for r in rows], f"o{style}", ms=4, color=colour, label=label
            )
        for label, times in PAPER.get(name, {}).items():
            lengths = PAPER_LENGTHS[: len(times)]
            panel.plot(lengths, times, "x:", color=PAPER_COLOURS[label], alpha=0.7, label=f"paper, A100: {label}")
        panel.set(title=title, xlabel="length", yscale="log")
        panel.set_xscale("log", base=2)
        panel.grid(alpha=0.25)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / FIGURE) as temporary:
        figure.savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    return [folder / FIGURE]


def _extent(benchmark: dict[str, Any]) -> tuple[int, int]:
    """Return how many lengths of single sequences it has, and how many cases."""
    single = {row["length"] for rows in _lines(benchmark).values() for row in rows}
    return len(single), len({(row["batch"], row["length"]) for row in benchmark["rows"]})


def _lines(benchmark: dict[str, Any]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Return the layers timed on single sequences, by mixer, backend and dtype."""
    lines: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in benchmark["rows"]:
        if row["timed"] == "layer" and row["batch"] == 1:
            lines.setdefault((row["mixer"], row["backend"], row["dtype"]), []).append(row)
    return lines
