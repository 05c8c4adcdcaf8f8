"""A user's own images: FOLDER/CLASS/image, or images without a class straight in FOLDER."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orchid.ops.checks import did_you_mean
from orchid.tasks.imagenette import FOLDERS
from orchid.tasks.pixels import read_rgb

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

HIDDEN = (".", "__MACOSX")  # how folders begin that file managers leave behind
LISTED = 20  # classes that a message has room for


@dataclass
class OwnImages:
    """Images (N, 3, side, side) uint8, their files, and their labels (N,) where their folders name classes."""

    images: Tensor
    files: list[Path]
    labels: Tensor | None


def read_folder(folder: Path, classes: tuple[str, ...], side: int) -> OwnImages:
    """Read every image, its shorter side resized to ``side``, its middle kept; what cannot be read is named."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder")
    known = {name.lower().replace(" ", "_"): number for number, name in enumerate(classes)}
    files: list[Path] = []
    labels: list[int] = []
    for own in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(HIDDEN)):
        found = _images(own)
        name = own.name.lower().replace(" ", "_")
        if name not in known and own.name in FOLDERS:
            name = FOLDERS[own.name].lower().replace(" ", "_")
        if found and name not in known:
            raise ValueError(_unknown(own, classes))
        files += found
        labels += [known.get(name, 0)] * len(found)
    loose = _images(folder)
    if files and loose:
        raise ValueError(f"{folder} has images in folders of classes and others beside them, such as {loose[0].name}")
    if not files and not loose:
        raise ValueError(f"{folder} has no images ({', '.join(SUFFIXES)})")
    pixels = torch.stack([middle(read_rgb(path, str(path)), side) for path in files or loose])
    return OwnImages(pixels, files or loose, torch.tensor(labels) if files else None)


def _unknown(folder: Path, classes: tuple[str, ...]) -> str:
    """Return what to say of a folder that has no class's name."""
    close = did_you_mean(folder.name.lower(), [name.lower() for name in classes])
    known = ", ".join(classes[:LISTED]) + (f" and {len(classes) - LISTED} more" if len(classes) > LISTED else "")
    return f"{folder}: the model knows no class {folder.name!r}{close}; it knows {known}"


def _images(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.suffix.lower() in SUFFIXES)


def middle(image: Any, side: int) -> Tensor:
    """Return the middle (3, side, side) uint8 of a picture, PIL's RGB, its shorter side resized."""
    from PIL import Image

    scale = side / min(image.size)
    width, height = (max(side, round(size * scale)) for size in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - side) // 2, (height - side) // 2
    pixels = np.asarray(image.crop((left, top, left + side, top + side)))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)
