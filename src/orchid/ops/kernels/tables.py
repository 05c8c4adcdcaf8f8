"""Tables that kernels read: waves, the order in which threads hold tiles of them, and where tables are kept."""

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")


class Made(Generic[Value]):
    """What has been made once for all calls, whatever stream they come on: the first ones may have to wait for it.

    Args:
        value: tensors that the current stream has begun to make.
        device: where they are.
    """

    def __init__(self, value: Value, device: torch.device) -> None:
        self._value, self._device = value, device
        self._event = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None

    def ready(self) -> Value:
        """Return them to the current stream."""
        if self._event is not None and not capturing(self._device):  # a capture begins when all is done
            if self._event.query():
                self._event = None
            else:
                torch.cuda.current_stream(self._device).wait_event(self._event)
        return self._value


_KEPT: dict[tuple[object, torch.device], Made[Any]] = {}


def kept(key: object, device: torch.device, make: Callable[[], Value]) -> Value:
    """Return the tables of a key on a device, made once; those made while a graph is captured are not kept."""
    found = _KEPT.get((key, device))
    if found is not None:
        value: Value = found.ready()
        return value
    value = make()
    if not capturing(device):
        _KEPT[key, device] = Made(value, device)
    return value


def capturing(device: torch.device) -> bool:
    """Return whether a graph is captured: what is made then belongs to it, and holds nothing before its replay."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def waves(rows: int, columns: int, period: int, device: torch.device) -> Tensor:
    """Return the real and imaginary parts of exp(-2 pi i r c / period), (2, rows, columns), float64."""
    r, c = torch.arange(rows, device=device), torch.arange(columns, device=device)
    angle = (r[:, None] * c % period).double() * (2 * math.pi / period)
    return torch.stack((angle.cos(), -angle.sin()))


def fragments(x: Tensor, across: int = 1) -> Tensor:
    """Return tiles (..., ROWS, COLUMNS) in the order in which threads hold a product's result.

    Warps stand along the rows, sixteen each, or ``across`` the columns, eight each in turn. The lanes of a warp stand
    for eight rows and four pairs of columns, their registers for the other eight rows and what is left.
    """
    rows, columns = x.shape[-2:]
    down = rows // 16 if across == 1 else 1
    parts = x.unflatten(-2, (rows // (16 * down), down, 2, 8)).unflatten(-1, (columns // (8 * across), across, 4, 2))
    # ..., rest of rows, down, half, 8, rest of columns, across, 4, 2
    order = (-8, -4, -7, -3, -5, -2, -6, -1)
    return parts.movedim(order, tuple(range(-8, 0))).contiguous()
