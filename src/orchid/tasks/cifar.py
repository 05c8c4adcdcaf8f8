"""CIFAR-10 from a folder: the official binary batches, or the same images packed losslessly into .npz files."""

import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PARTS = {"train": (1, 2, 3, 4, 5), "test": (0,)}
SIDE = 32


def load_cifar10(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Return the images (N, 3, 32, 32) uint8 and labels (N,) int64 of "train" or "test"."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder with CIFAR-10")
    images, labels = zip(*(_part(folder, split, number) for number in PARTS[split]), strict=True)
    return torch.cat(images), torch.cat(labels)


def _part(folder: Path, split: str, number: int) -> tuple[Tensor, Tensor]:
    binary = folder / (f"data_batch_{number}.bin" if number else "test_batch.bin")
    packed = folder / (f"{split}_{number}.npz" if number else f"{split}.npz")
    if binary.is_file():
        images, labels = _read_binary(binary)
    elif packed.is_file():
        images, labels = _read_packed(packed)
    else:
        raise ValueError(f"{folder} has neither {binary.name} nor {packed.name}")
    if labels.size != len(images) or labels.max(initial=0) >= len(CLASSES):
        raise ValueError(f"{binary if binary.is_file() else packed}: its labels do not fit its {len(images)} images")
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels.astype(np.int64))


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read rows of a label and three planes of 32 x 32 bytes."""
    data = np.fromfile(path, dtype=np.uint8)
    row = 1 + 3 * SIDE * SIDE
    if not data.size or data.size % row:
        raise ValueError(f"{path} is damaged: {data.size} bytes are no whole number of images of {row}")
    rows = data.reshape(-1, row)
    return rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1).copy(), rows[:, 0]


def _read_packed(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read strips of images, 32 pixels high, compressed without loss, and their labels."""
    from PIL import Image

    try:
        with np.load(path, allow_pickle=False) as data:
            names = sorted(name for name in data.files if name.startswith("strip_"))
            strips = [np.asarray(Image.open(io.BytesIO(data[name].tobytes())).convert("RGB")) for name in names]
            return np.concatenate([strip.reshape(-1, SIDE, SIDE, 3) for strip in strips]), data["labels"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be read ({error})") from None
