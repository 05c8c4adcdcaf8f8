"""The demo's picture: learning curves, a kernel that follows the data, and where the answer came from."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orchid.commands.runs import load_run
from orchid.files import atomic
from orchid.nn.mixer import OrchidMixer
from orchid.tasks.recall import MASK, SPECIAL, Recall, RecallTask
from orchid.train.run_folder import RunFolder

COLORS = {"Orchid": "#8e44ad", "static kernel": "#2980b9", "attention": "#e67e22"}


def draw_demo(out: Path, runs: list[tuple[str, str]]) -> Path:
    """Draw ``out``/demo.png from the runs (recipe, label) under ``out``; the first is Orchid's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folders = {label: out / recipe.rpartition("/")[2] for recipe, label in runs}
    figure = Figure(figsize=(13.5, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    curves, kernel, matrix = figure.subplots(1, 3, width_ratios=[1.0, 1.0, 1.15])
    _draw_curves(curves, folders)
    engine = load_run(folders[runs[0][1]], cpu=True)
    task = engine.task
    assert isinstance(task, RecallTask)
    model = engine.accelerator.unwrap_model(engine.model)
    tokens, targets = task.recall.batch("test", 1, 0, 256)
    with torch.no_grad():
        inputs = _mixer_inputs(model, tokens)
        right = model(tokens)[:, -1].argmax(dim=-1) == targets[:, -1]
        _draw_kernels(kernel, model.blocks[-1].mixer, inputs[-1])
        _draw_matrix(matrix, task.recall, model, inputs, tokens, right)
    path = out / "demo.png"
    with atomic(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")
    return path


def _draw_curves(axes: Any, folders: dict[str, Path]) -> None:
    guess = 0.0
    for label, folder in folders.items():
        points = [e for e in RunFolder(folder).history() if "test/accuracy" in e]
        steps, accuracy = [e["step"] for e in points], [100 * e["test/accuracy"] for e in points]
        axes.plot(steps, accuracy, color=COLORS[label], linewidth=2.2, label=f"{label}: {accuracy[-1]:.1f} %")
        guess = 100 * points[-1]["test/best_guess"]
    axes.axhline(guess, color="gray", linestyle=":", label=f"best guess without looking up: {guess:.1f} %")
    axes.set(title="Learning to recall", xlabel="training step", ylabel="right answers (%)", ylim=(0, 103))
    axes.legend(loc="center right", bbox_to_anchor=(1.0, 0.41), frameon=False, fontsize=9)
    axes.grid(alpha=0.25)


def _mixer_inputs(model: Any, tokens: Tensor) -> list[Tensor]:
    """Return what the mixer of each block sees."""
    seen: list[Tensor] = []
    hooks = [
        block.mixer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0])) for block in model.blocks
    ]
    model(tokens)
    for hook in hooks:
        hook.remove()
    return seen


def _draw_kernels(axes: Any, mixer: OrchidMixer, x: Tensor) -> None:
    """Show the kernel of one channel for three sequences; the channel that follows the data most."""
    kernels = mixer.kernel(x)  # (B, D, n)
    channel = int((kernels.std(dim=0).norm(dim=-1) / kernels.norm(dim=-1).mean(dim=0)).argmax())
    n = kernels.shape[-1]
    lags = range(-(n // 2), n - n // 2)
    for index, shade in enumerate(("#5b2c6f", "#a569bd", "#d7bde2")):
        axes.plot(lags, kernels[index, channel].roll(n // 2).numpy(), color=shade, label=f"sequence {index + 1}")
    axes.set(title="One channel's kernel, three sequences", xlabel="lag (tokens)", ylabel="h0 + hx")
    axes.legend(frameon=False, fontsize=9)
    axes.grid(alpha=0.25)


def _draw_matrix(axes: Any, recall: Recall, model: Any, inputs: list[Tensor], tokens: Tensor, right: Tensor) -> None:
    """Show how much each position contributes to the answer in one sequence answered rightly.

    Over the layers, the one and the channel are shown whose query row singles out the recalled positions best.
    """
    pairs = recall.length // 2
    wanted = (tokens[:, 0::2] == tokens[:, -2:-1]).nonzero()
    counts = (tokens[:, 0::2] == tokens[:, -2:-1]).sum(dim=1)
    fits = right & (counts >= 3) & (counts <= 4)  # the query's key, and two or three pairs that hold it
    row = int(fits.nonzero()[0]) if fits.any() else 0
    places = [int(2 * pair + 1) for sample, pair in wanted.tolist() if sample == row and pair < pairs - 1]
    best, score = None, -1.0
    for block, x in zip(model.blocks, inputs, strict=True):
        values = block.mixer.values(x[row : row + 1])[0]
        for channel in range(block.mixer.d_model):
            matrix = block.mixer.mixing_matrix(x[row : row + 1], channel=channel)[0]
            weights = (matrix * values[:, channel]).abs()
            share = float(weights[-1, places].sum() / weights[-1].sum().clamp_min(1e-12))
            if share > score:
                best, score = weights, share
    assert best is not None
    axes.imshow((best / best.max()).sqrt().numpy(), cmap="Purples", aspect="equal", interpolation="nearest")
    for place in places:
        axes.annotate(
            "",
            (place, recall.length - 0.5),
            (place, 1.07 * recall.length - 0.5),
            annotation_clip=False,
            arrowprops={"arrowstyle": "-|>", "color": "#c0392b"},
        )
    axes.set_title("Mixing matrix; the last row is the query")
    axes.set(
        ylabel="to position", xlabel=f"from position; arrows: where the asked key's value stood\n{_text(tokens[row])}"
    )
    axes.tick_params(axis="x", pad=14)


def _text(tokens: Tensor) -> str:
    """Return the last pairs of a sequence: letters are keys, numbers values, ? the question."""
    first_value = int(tokens[1::2][tokens[1::2] != MASK].min()) if (tokens[1::2] != MASK).any() else 0
    words = []
    for key, value in tokens.view(-1, 2)[-6:].tolist():
        words.append(f"{chr(ord('a') + key - SPECIAL)}{'?' if value == MASK else value - first_value + 1}")
    return "… " + "  ".join(words)
