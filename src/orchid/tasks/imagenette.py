"""Imagenette from a folder: ten classes of ImageNet, every image compressed by itself inside train.npz and val.npz."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from orchid.digests import joint_digest
from orchid.tasks.pixels import check_labels, load_arrays, read_rgb

CLASSES = (
    "tench",
    "English springer",
    "cassette player",
    "chain saw",
    "church",
    "French horn",
    "garbage truck",
    "gas pump",
    "golf ball",
    "parachute",
)
# What ImageNet's folders call them.
FOLDERS = {
    "n01440764": CLASSES[0],
    "n02102040": CLASSES[1],
    "n02979186": CLASSES[2],
    "n03000684": CLASSES[3],
    "n03028079": CLASSES[4],
    "n03394916": CLASSES[5],
    "n03417042": CLASSES[6],
    "n03425413": CLASSES[7],
    "n03445777": CLASSES[8],
    "n03888257": CLASSES[9],
}
SIDE = 96
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, by colour


def load_imagenette(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Return the images (N, 3, 96, 96) uint8 and labels (N,) int64 of "train" or "test" (its validation set)."""
    packed = Packed.read(folder, split)
    images = np.empty((len(packed.labels), SIDE, SIDE, 3), np.uint8)
    for number in range(len(packed.labels)):
        image = packed.image(number)
        if image.size != (SIDE, SIDE):
            size = " x ".join(map(str, image.size))
            raise ValueError(f"{packed.path}: image {number} has {size} pixels; expected {SIDE} x {SIDE}")
        images[number] = np.asarray(image)
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.tensor(packed.labels)


@dataclass(frozen=True)
class Packed:
    """Compressed images one after another: image i of the file is bytes offsets[i] ... offsets[i + 1] of data.

    ``numbers`` are the images that are meant, with their labels: all of them, or some.
    """

    path: Path
    classes: tuple[str, ...]
    labels: list[int]
    data: np.ndarray
    offsets: np.ndarray
    numbers: Sequence[int]

    @classmethod
    def read(cls, folder: Path, split: str) -> Self:
        """Return the images of "train" or "test", still compressed."""
        path = folder / ("train.npz" if split == "train" else "val.npz")
        if not path.is_file():
            raise ValueError(f"{folder} has no {path.name}: it is not a folder with Imagenette")
        arrays = load_arrays(path, ("data", "offsets", "labels"))
        check_labels(path, arrays["labels"], arrays["offsets"].size - 1, len(CLASSES))
        labels: list[int] = arrays["labels"].astype(np.int64).tolist()
        return cls(path, CLASSES, labels, arrays["data"], arrays["offsets"].astype(np.int64), range(len(labels)))

    def image(self, place: int) -> Any:
        """Return one of them, PIL's RGB."""
        number = self.numbers[place]
        part = self.data[self.offsets[number] : self.offsets[number + 1]]
        return read_rgb(part.tobytes(), f"{self.path}: image {number}")

    def subset(self, places: list[int]) -> Self:
        """Return some of them."""
        return replace(self, numbers=[self.numbers[i] for i in places], labels=[self.labels[i] for i in places])

    def digest(self) -> str:
        """Return what tells these images and labels from others."""
        parts = (self.data, self.offsets, np.array(self.labels), np.array(self.numbers))
        return joint_digest(hashlib.sha256(np.ascontiguousarray(part).data).hexdigest() for part in parts)
