"""Pictures as RGB: whatever a file holds, and an error that names it where it cannot be read."""

import io
from pathlib import Path
from typing import Any

import numpy as np


def read_rgb(source: Path | bytes, name: str) -> Any:
    """Return a picture, of a file or of its bytes, as PIL's RGB, upright; ``name`` is what an error calls it.

    Greys of 16 bits are scaled to 8, which PIL would cut off; other depths are an error. What is transparent is white.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
            image = ImageOps.exif_transpose(file)  # cameras store how they were held
            if image.mode[0] in "IF":
                image = Image.fromarray(_eight_bits(np.asarray(image), image.mode))
            if image.has_transparency_data:
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            return image.convert("RGB")
    except Exception as error:  # decoders raise anything for a damaged file
        raise unreadable(name, error) from None


def _eight_bits(grey: np.ndarray, mode: str) -> np.ndarray:
    """Return greys 0 ... 65,535 in eight bits; PIL's mode "I" may hold 8, 16 or 32."""
    if mode == "F" or grey.min(initial=0) < 0 or grey.max(initial=0) > 65_535:
        raise ValueError("its pixels are neither of 8 nor of 16 bits")
    wide = mode != "I" or grey.max(initial=0) > 255
    return (grey / (257 if wide else 1)).round().astype(np.uint8)


def load_arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return arrays of an .npz file: those named, and all whose names begin with one that ends in "_"."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            found = [key for key in file.files if any(key == n or (n[-1] == "_" and key.startswith(n)) for n in names)]
            arrays = {key: file[key] for key in sorted(found)}
    except Exception as error:
        raise unreadable(path, error) from None
    missing = [name for name in names if not any(key == name or key.startswith(name) for key in arrays)]
    if missing:
        raise ValueError(f"{path} has no array {missing[0]!r}")
    return arrays


class Unreadable(ValueError):
    """A file that cannot be read."""


def unreadable(name: str | Path, error: Exception) -> Unreadable:
    """Return the error for a file that cannot be read."""
    return Unreadable(f"{name} cannot be read ({str(error) or type(error).__name__})")


def check_labels(path: Path, labels: np.ndarray, images: int, classes: int) -> None:
    """Accept only labels 0 ... classes - 1, one for each image."""
    if labels.size != images or labels.max(initial=0) >= classes or labels.min(initial=0) < 0:
        raise ValueError(f"{path}: its labels do not fit its {images} images of {classes} classes")
