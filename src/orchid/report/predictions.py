"""What an image classifier takes images for: a confusion matrix, samples, a table of files."""

from pathlib import Path

import torch
from torch import Tensor

from orchid.files import atomic
from orchid.tasks.image_folder import OwnImages

SAMPLES = 24  # images shown, mistakes first


def draw_predictions(
    images: Tensor,
    labels: Tensor,
    predicted: Tensor,
    classes: tuple[str, ...],
    folder: Path,
    *,
    name: str = "predictions.png",
) -> Path:
    """Draw the confusion matrix, rows in percent, beside images (N, 3, H, W) uint8 with what they were taken for."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    count = len(classes)
    pairs = torch.bincount(labels * count + predicted, minlength=count * count).view(count, count)
    rows = 100 * pairs / pairs.sum(dim=1, keepdim=True).clamp(min=1)
    figure = Figure(figsize=(15, 6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.15))
    axes = left.subplots()
    axes.imshow(rows.numpy(), cmap="Purples", vmin=0, vmax=100)
    for row in range(count):
        for column in range(count):
            if pairs[row, column]:
                shade = "white" if rows[row, column] > 50 else "black"
                axes.text(column, row, f"{rows[row, column]:.0f}", ha="center", va="center", color=shade, fontsize=8)
    axes.set_xticks(range(count), classes, rotation=45, ha="right")
    axes.set_yticks(range(count), classes)
    accuracy = 100 * (labels == predicted).float().mean()
    axes.set(
        xlabel="taken for", ylabel="is", title=f"{accuracy:.2f} % of {len(labels):,} images right; rows in percent"
    )
    shown = _samples(labels, predicted)
    for panel, number in zip(right.subplots(4, SAMPLES // 4).flat, shown.tolist(), strict=False):
        own, other = classes[labels[number]], classes[predicted[number]]
        panel.imshow(images[number].permute(1, 2, 0).numpy(), interpolation="nearest")
        wrong = labels[number] != predicted[number]
        panel.set_title(f"{other}\n(is {own})" if wrong else own, fontsize=8, color="#b71c1c" if wrong else "#1b5e20")
    for panel in right.axes:
        panel.axis("off")
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / name) as temporary:
        figure.savefig(temporary, dpi=100, format="png", metadata={"Software": None})
    return folder / name


def _samples(labels: Tensor, predicted: Tensor) -> Tensor:
    """Return the numbers of up to SAMPLES images: half of them mistakes where there are so many, evenly spaced."""
    wrong, right = (labels != predicted).nonzero().flatten(), (labels == predicted).nonzero().flatten()
    mistakes = min(len(wrong), max(SAMPLES // 2, SAMPLES - len(right)))
    parts = ((wrong, mistakes), (right, min(len(right), SAMPLES - mistakes)))
    return torch.cat([part[torch.linspace(0, len(part) - 1, take).long()] for part, take in parts if take])


def write_predictions(own: OwnImages, predicted: Tensor, classes: tuple[str, ...], folder: Path) -> Path:
    """Write FOLDER/own_predictions.tsv: file, prediction, and the label where there is one."""
    lines = ["file\tprediction" + ("" if own.labels is None else "\tlabel")]
    for number, path in enumerate(own.files):
        cells = [f"{path.parent.name}/{path.name}", classes[int(predicted[number])]]
        if own.labels is not None:
            cells.append(classes[int(own.labels[number])])
        lines.append("\t".join(cells))
    with atomic(folder / "own_predictions.tsv") as temporary:
        temporary.write_text("\n".join(lines) + "\n")
    return folder / "own_predictions.tsv"
