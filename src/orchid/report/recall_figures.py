"""The figures of associative recall: learning curves, accuracy over length and vocabulary, ablations."""

import statistics
from pathlib import Path
from typing import Any

from orchid.files import atomic
from orchid.recipes.recall import ABLATIONS, FIGURE_ROWS, MODELS, VOCABULARIES
from orchid.recipes.recall_paper import LENGTHS, paper_accuracy
from orchid.report.markdown import Run
from orchid.report.recall import FIGURES, ablation_runs, cell, row_name

COLOURS = {
    "orchid": "#c2185b",
    "static": "#f48fb1",
    "attention": "#9e9e9e",
    "attention-conv": "#212121",
    "ckconv": "#1e88e5",
    "h3": "#90caf9",
    "hyena": "#00897b",
    "mamba": "#f9a825",
    "monarch": "#80cbc4",
    "performer": "#bcaaa4",
    "s4": "#7e57c2",
}
# The ablations in panels of one question each; every panel shows the default for comparison.
PANELS = {
    "Conv1d placement": ["phase", *(name for name in ABLATIONS if name.startswith("placement"))],
    "Type I, and Type II with each sigma": [
        *("phase", "static", "cross", "cross-tanh", "cross-sigmoid", "cross-softsign", "cross-softshrink")
    ],
    "Transform and its norm": [
        *("phase", "phase-backward", "phase-dct", "phase-dct-backward"),
        *("cross", "cross-backward", "cross-dct", "cross-dct-backward"),
    ],
}


def draw_recall(runs: list[Run], folder: Path) -> list[Path]:
    """Draw what there are runs for into ``folder``; return the pictures."""
    figures = {"curves": _curves(runs), "grid": _grid(runs), "ablations": _ablations(runs)}
    written = []
    for name, figure in figures.items():
        if figure is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic(folder / FIGURES[name]) as temporary:
                figure.savefig(temporary, dpi=110, format="png", metadata={"Software": None})
            written.append(folder / FIGURES[name])
    return written


def mean_curve(runs: list[Run]) -> tuple[list[int], list[float]]:
    """Return steps and accuracies in percent, the mean over runs that were evaluated at the same steps."""
    steps = [entry["step"] for entry in runs[0]["history"]]
    scores = zip(*([100 * entry["test/accuracy"] for entry in run["history"]] for run in runs), strict=True)
    return steps, [statistics.mean(values) for values in scores]


def _canvas(panels: int, height: float = 4.0) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * panels, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, sharey=True)
    axes[0].set_ylabel("right answers (%)")
    for panel in axes:
        panel.grid(alpha=0.25)
        panel.set_ylim(-3, 103)
    return figure, axes


def _curves(runs: list[Run]) -> Any:
    """Accuracy over steps for every model, a panel per vocabulary, the mean of the seeds."""
    if not any(cell(runs, row, size, 128) for row in MODELS for size in VOCABULARIES):
        return None
    figure, axes = _canvas(len(VOCABULARIES), 4.6)
    for panel, size in zip(axes, VOCABULARIES, strict=True):
        for row in MODELS:
            if same := cell(runs, row, size, 128):
                panel.plot(
                    *mean_curve(same), color=COLOURS[row], label=row_name(row), lw=2.6 if row == "orchid" else 1.5
                )
        panel.set(title=f"vocabulary {size}, length 128", xlabel="step", xscale="log")
    handles, labels = max((panel.get_legend_handles_labels() for panel in axes), key=lambda pair: len(pair[0]))
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    return figure


def _grid(runs: list[Run]) -> Any:
    """Accuracy over length, a panel per vocabulary: ours as lines, the paper's dotted; what was not run has no mark."""
    lengths = LENGTHS[:-1]
    if not any(cell(runs, row, size, length) for row in FIGURE_ROWS for size in VOCABULARIES for length in lengths[1:]):
        return None
    figure, axes = _canvas(len(VOCABULARIES))
    for panel, size in zip(axes, VOCABULARIES, strict=True):
        for row in FIGURE_ROWS:
            ours = [(length, same) for length in lengths if (same := cell(runs, row, size, length))]
            scores = [100 * statistics.mean(run["metrics"]["test/accuracy"] for run in same) for _, same in ours]
            panel.plot([n for n, _ in ours], scores, "o-", color=COLOURS[row], label=row_name(row))
            paper = [(n, 100 * found["test/accuracy"]) for n in lengths if (found := paper_accuracy(row, size, n))]
            panel.plot(*zip(*paper, strict=True), "x:", color=COLOURS[row], alpha=0.6)
        panel.set(title=f"vocabulary {size}", xlabel="length")
        panel.set_xscale("log", base=2)
        panel.set_xticks(lengths)
    axes[0].plot([], [], "x:", color="grey", label="the paper's")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    return figure


def _ablations(runs: list[Run]) -> Any:
    """Accuracy over steps, a panel per question."""
    if not any(ablation_runs(runs, name) for name in ABLATIONS):
        return None
    figure, axes = _canvas(len(PANELS), 4.6)
    for panel, (title, names) in zip(axes, PANELS.items(), strict=True):
        for index, name in enumerate(names):
            if same := ablation_runs(runs, name):
                colour = COLOURS["orchid"] if name == "phase" else f"C{index}"
                panel.plot(*mean_curve(same), color=colour, label=name, lw=2.6 if name == "phase" else 1.5)
        panel.set(title=title, xlabel="step")
        panel.legend(frameon=False, fontsize=8, loc="center right")
    return figure
