"""The precision in which things are computed: autocast around a layer, float32 at least inside."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocast_on(x: Tensor) -> bool:
    """Return whether autocast is on where x is; tensors without data, on "meta", have none."""
    kind = x.device.type
    # is_autocast_available would say so of any device, but torch 2.11's compiler breaks its graphs there.
    return kind != "meta" and torch.is_autocast_enabled(kind)


def working_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which a product with x is taken: autocast's where it is on, else that of x."""
    return torch.get_autocast_dtype(x.device.type) if autocast_on(x) else x.dtype


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast is off on x's device."""
    return torch.autocast(x.device.type, enabled=False) if autocast_on(x) else nullcontext()


def at_least_float32(x: Tensor) -> Tensor:
    """Return x in float32, or as it is when it is wider."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
