"""Folders of images: a data set's, FOLDER/CLASS/image, and a user's own, which may also lie straight in FOLDER."""

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from orchid.ops.checks import did_you_mean
from orchid.tasks.imagenette import FOLDERS
from orchid.tasks.pixels import read_rgb

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

HIDDEN = (".", "__MACOSX")  # how folders begin that file managers leave behind
LISTED = 20  # classes that a message has room for


@dataclass(frozen=True)
class Files:
    """Paths and labels of images that are read when they are needed, classes in the order of their folders' names."""

    classes: tuple[str, ...]
    paths: list[str]
    labels: list[int]

    def image(self, number: int) -> Any:
        """Return one of them, PIL's RGB."""
        return read_rgb(Path(self.paths[number]), self.paths[number])

    def subset(self, places: list[int]) -> Self:
        """Return some of them."""
        return replace(self, paths=[self.paths[i] for i in places], labels=[self.labels[i] for i in places])

    def digest(self) -> str:
        """Return what tells these files from others, wherever they lie: classes and names, which take no reading."""
        names = hashlib.sha256()
        for path, label in zip(self.paths, self.labels, strict=True):
            names.update(f"{self.classes[label]}/{Path(path).name}\n".encode())
        return names.hexdigest()


def list_files(folder: Path) -> Files:
    """Return the images of FOLDER/CLASS; a folder without any is an error."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder of classes")
    paths: list[str] = []
    labels: list[int] = []
    classes = _folders(folder)
    for number, own in enumerate(classes):
        found = _images(own)
        if not found:
            raise ValueError(f"{own} has no images ({', '.join(SUFFIXES)})")
        paths += found
        labels += [number] * len(found)
    if not paths:
        raise ValueError(f"{folder} has no folders of classes")
    return Files(tuple(own.name for own in classes), paths, labels)


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
    for own in _folders(folder):
        found = [Path(path) for path in _images(own)]
        name = own.name.lower().replace(" ", "_")
        if name not in known and own.name in FOLDERS:
            name = FOLDERS[own.name].lower().replace(" ", "_")
        if found and name not in known:
            raise ValueError(_unknown(own, classes))
        files += found
        labels += [known.get(name, 0)] * len(found)
    loose = [Path(path) for path in _images(folder)]
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


def _folders(folder: Path) -> list[Path]:
    """Return the folders of classes, sorted."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(HIDDEN))


def _images(folder: Path) -> list[str]:
    """Return the paths of a folder's images, sorted; a million of them are listed without being looked at."""
    with os.scandir(folder) as entries:
        return sorted(e.path for e in entries if e.name.lower().endswith(SUFFIXES) and e.is_file())


def middle(image: Any, side: int) -> Tensor:
    """Return the middle (3, side, side) uint8 of a picture, PIL's RGB, its shorter side resized."""
    from PIL import Image

    scale = side / min(image.size)
    width, height = (max(side, round(size * scale)) for size in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - side) // 2, (height - side) // 2
    pixels = np.asarray(image.crop((left, top, left + side, top + side)))
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1)
