"""CIFAR-10 from a folder: the official binary or Python batches, or the same images packed losslessly into .npz."""

import pickletools
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from orchid.tasks.pixels import check_labels, load_arrays, read_rgb, unreadable

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PARTS = {"train": (1, 2, 3, 4, 5), "test": (0,)}
SIDE = 32
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training images, by colour

# How a listing of a pickled file calls whole numbers.
WHOLE_NUMBERS = ("INT", "BININT", "BININT1", "BININT2")


def load_cifar10(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Return the images (N, 3, 32, 32) uint8 and labels (N,) int64 of "train" or "test"."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder with CIFAR-10")
    images, labels = zip(*(_part(folder, split, number) for number in PARTS[split]), strict=True)
    return torch.cat(images), torch.cat(labels)


def _part(folder: Path, split: str, number: int) -> tuple[Tensor, Tensor]:
    official = f"data_batch_{number}" if number else "test_batch"
    readers = {
        f"{official}.bin": _read_binary,
        official: _read_python,
        f"{split}_{number}.npz" if number else f"{split}.npz": _read_packed,
    }
    for name, read in readers.items():
        if (folder / name).is_file():
            images, labels = read(folder / name)
            check_labels(folder / name, labels, len(images), len(CLASSES))
            pixels = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
            return pixels, torch.from_numpy(labels.astype(np.int64))
    inside = next((path for path in sorted(folder.glob("cifar-10-batches-*")) if path.is_dir()), None)
    hint = f"; did you mean {inside}?" if inside else ""
    raise ValueError(f"{folder} has none of {', '.join(readers)}{hint}")


def _read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read rows of a label and three planes of 32 x 32 bytes."""
    data = np.fromfile(path, dtype=np.uint8)
    row = 1 + 3 * SIDE * SIDE
    if not data.size or data.size % row:
        raise ValueError(f"{path} is damaged: {data.size} bytes are no whole number of images of {row}")
    rows = data.reshape(-1, row)
    return _planes(rows[:, 1:]), rows[:, 0]


def _read_python(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read rows of three planes and labels out of a pickled dictionary, from its listing: nothing is unpickled.

    The pixels are the longest string in the file, the labels the whole numbers after the string "labels".
    """
    pixels, labels, in_labels, by_columns = b"", [], False, False
    try:
        last = False  # of the array's settings, before its data: whether it is stored by columns
        for opcode, value, _ in pickletools.genops(path.read_bytes()):
            last = opcode.name == "NEWTRUE" if opcode.name in ("NEWTRUE", "NEWFALSE") else last
            last = value if isinstance(value, bool) else last
            if isinstance(value, str | bytes | bytearray):
                text = value.encode("latin-1") if isinstance(value, str) else bytes(value)
                by_columns = (last if len(text) > len(pixels) else by_columns) or text == b"F"
                pixels = max(pixels, text, key=len)
                in_labels = text == b"labels" or (in_labels and text == b"latin1")  # how bytes are spelled as text
            elif in_labels and opcode.name in WHOLE_NUMBERS:
                labels.append(value)
        if by_columns or not pixels or not labels:
            raise ValueError("not a dictionary of rows of pixels and of labels")
        return _planes(np.frombuffer(pixels, np.uint8)), np.array(labels, np.int64)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


def _planes(rows: np.ndarray) -> np.ndarray:
    """Return rows of three planes as images (N, 32, 32, 3)."""
    return rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1).copy()


def _read_packed(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read strips of images, 32 pixels high, compressed without loss, and their labels."""
    arrays = load_arrays(path, ("strip_", "labels"))
    labels = arrays.pop("labels")
    strips = [np.asarray(read_rgb(strip.tobytes(), f"{path}: {name}")) for name, strip in arrays.items()]
    if any(strip.size % (3 * SIDE * SIDE) for strip in strips):
        raise ValueError(f"{path}: its strips are no whole numbers of images of {SIDE} x {SIDE}")
    return np.concatenate([strip.reshape(-1, SIDE, SIDE, 3) for strip in strips]), labels
