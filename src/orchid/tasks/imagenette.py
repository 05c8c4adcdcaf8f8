"""Imagenette from a folder: ten classes of ImageNet, every image compressed by itself inside train.npz and val.npz."""

import io
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

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
SIDE = 96
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, by colour


def load_imagenette(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Return the images (N, 3, 96, 96) uint8 and labels (N,) int64 of "train" or "test" (its validation set)."""
    from PIL import Image

    path = folder / ("train.npz" if split == "train" else "val.npz")
    if not path.is_file():
        raise ValueError(f"{folder} has no {path.name}: it is not a folder with Imagenette")
    try:
        with np.load(path, allow_pickle=False) as file:
            data, offsets, labels = file["data"], file["offsets"].astype(np.int64), file["labels"].astype(np.int64)
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise ValueError(f"{path} cannot be read ({error})") from None
    if labels.size != offsets.size - 1 or labels.max(initial=0) >= len(CLASSES):
        raise ValueError(f"{path}: its labels do not fit its {offsets.size - 1} images")
    images = np.empty((labels.size, SIDE, SIDE, 3), np.uint8)
    for number in range(labels.size):
        try:
            with Image.open(io.BytesIO(data[offsets[number] : offsets[number + 1]].tobytes())) as image:
                images[number] = np.asarray(image.convert("RGB"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path}: image {number} cannot be read ({error})") from None
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)
