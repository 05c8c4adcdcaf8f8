"""Tables that kernels read: waves, the order in which threads hold tiles of them, and where tables are kept."""

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")
_KEPT: dict[tuple[object, torch.device], object] = {}


def kept(key: object, device: torch.device, make: Callable[[], Made]) -> Made:
    """Return the tables of a key on a device, made once; those made while a graph is captured are not kept."""
    if (key, device) in _KEPT:
        return _KEPT[key, device]  # type: ignore[return-value]
    made = make()
    if not capturing(device):
        _KEPT[key, device] = made
    return made


def capturing(device: torch.device) -> bool:
    """Return whether a graph is captured: what is made then belongs to it, and holds nothing before its replay."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def waves(rows: int, columns: int, period: int, device: torch.device) -> Tensor:
    """Return the real and imaginary parts of exp(-2 pi i r c / period), (2, rows, columns), float64."""
    r, c = torch.arange(rows, device=device), torch.arange(columns, device=device)
    angle = (r[:, None] * c % period).double() * (2 * math.pi / period)
    return torch.stack((angle.cos(), -angle.sin()))


def fragments(x: Tensor) -> Tensor:
    """Return tiles (..., ROWS, COLUMNS) in the order in which threads hold a product's result.

    A warp holds 16 rows. Its lanes stand for eight rows and four pairs of columns, their registers for the other eight
    rows and the other columns.
    """
    rows, columns = x.shape[-2:]
    parts = x.unflatten(-2, (rows // 16, 2, 8)).unflatten(-1, (columns // 8, 4, 2))  # ..., warp, 2, 8, columns, 4, 2
    return parts.movedim((-3, -6, -4, -2, -5, -1), (-6, -5, -4, -3, -2, -1)).contiguous()
