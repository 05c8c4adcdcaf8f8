"""What an image classifier takes images for: a confusion matrix, samples, a table of files."""

import csv
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orchid.files import atomic
from orchid.tasks.image_folder import OwnImages

SAMPLES = 24  # images shown, mistakes first
ROOM = 18  # letters of a class's name above a sample
MATRIX = 30  # classes that a confusion matrix has room for


def keep_own(own: OwnImages, predicted: Tensor, classes: tuple[str, ...], folder: Path) -> dict[str, float]:
    """Write a user's images' classes to FOLDER/own_predictions.tsv and .png; with labels, return the accuracy."""
    write_predictions(own, predicted, classes, folder)
    draw_predictions(own.images, own.labels, predicted, classes, folder, name="own_predictions.png")
    return {} if own.labels is None else {"own/accuracy": (predicted == own.labels).float().mean().item()}


def draw_predictions(
    images: Tensor,
    labels: Tensor | None,
    predicted: Tensor,
    classes: tuple[str, ...],
    folder: Path,
    *,
    name: str = "predictions.png",
) -> Path:
    """Draw images (N, 3, H, W) uint8 with what they were taken for; of few classes, a confusion matrix beside them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matrix = labels is not None and len(classes) <= MATRIX
    figure = Figure(figsize=(15 if matrix else 9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    right: Any = figure
    if labels is not None and matrix:
        left, right = figure.subfigures(1, 2, width_ratios=(1, 1.15))
        _draw_matrix(left.subplots(), labels, predicted, classes)
    elif labels is not None:
        right.suptitle(_title(labels, predicted))
    _draw_samples(right.subplots(4, SAMPLES // 4), images, labels, predicted, classes)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / name) as temporary:
        figure.savefig(temporary, dpi=100, format="png", metadata={"Software": None})
    return folder / name


def _title(labels: Tensor, predicted: Tensor) -> str:
    return f"{100 * (labels == predicted).float().mean():.2f} % of {len(labels):,} images right"


def _draw_matrix(axes: Any, labels: Tensor, predicted: Tensor, classes: tuple[str, ...]) -> None:
    count = len(classes)
    pairs = torch.bincount(labels * count + predicted, minlength=count * count).view(count, count)
    rows = 100 * pairs / pairs.sum(dim=1, keepdim=True).clamp(min=1)
    axes.imshow(rows.numpy(), cmap="Purples", vmin=0, vmax=100)
    for row in range(count):
        for column in range(count):
            if pairs[row, column]:
                shade = "white" if rows[row, column] > 50 else "black"
                axes.text(column, row, f"{rows[row, column]:.0f}", ha="center", va="center", color=shade, fontsize=8)
    names = [_short(name) for name in classes]
    axes.set_xticks(range(count), names, rotation=45, ha="right")
    axes.set_yticks(range(count), names)
    axes.set(xlabel="taken for", ylabel="is", title=f"{_title(labels, predicted)}; rows in percent")


def _draw_samples(
    panels: Any, images: Tensor, labels: Tensor | None, predicted: Tensor, classes: tuple[str, ...]
) -> None:
    shown, names = _samples(predicted if labels is None else labels, predicted), [_short(name) for name in classes]
    for panel, number in zip(panels.flat, shown.tolist(), strict=False):
        panel.imshow(images[number].permute(1, 2, 0).numpy(), interpolation="nearest")
        taken, wrong = names[predicted[number]], labels is not None and labels[number] != predicted[number]
        told = f"{taken}\n(is {names[labels[number]]})" if labels is not None and wrong else taken
        colour = "black" if labels is None else "#b71c1c" if wrong else "#1b5e20"
        panel.set_title(told, fontsize=8, color=colour)
    for panel in panels.flat:
        panel.axis("off")


def _short(name: str) -> str:
    """Return a class's name as long as there is room for."""
    return name if len(name) <= ROOM else f"{name[: ROOM // 2 - 1]}…{name[-(ROOM // 2) :]}"


def _samples(labels: Tensor, predicted: Tensor) -> Tensor:
    """Return the numbers of up to SAMPLES images: half of them mistakes where there are so many, evenly spaced."""
    wrong, right = (labels != predicted).nonzero().flatten(), (labels == predicted).nonzero().flatten()
    mistakes = min(len(wrong), max(SAMPLES // 2, SAMPLES - len(right)))
    parts = ((wrong, mistakes), (right, min(len(right), SAMPLES - mistakes)))
    return torch.cat([part[torch.linspace(0, len(part) - 1, take).long()] for part, take in parts if take])


def write_predictions(own: OwnImages, predicted: Tensor, classes: tuple[str, ...], folder: Path) -> Path:
    """Write FOLDER/own_predictions.tsv: file, prediction, and the label where there is one."""
    labels = [] if own.labels is None else own.labels.tolist()
    with atomic(folder / "own_predictions.tsv") as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")  # quotes names with tabs
        writer.writerow(["file", "prediction", *(["label"] if labels else [])])
        for number, path in enumerate(own.files):
            told = [classes[labels[number]]] if labels else []
            writer.writerow([f"{path.parent.name}/{path.name}", classes[int(predicted[number])], *told])
    return folder / "own_predictions.tsv"
