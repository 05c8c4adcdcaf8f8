"""Errors at the boundary: each names the argument, its value and what would be right."""

import difflib
from collections.abc import Iterable
from numbers import Integral, Real

import torch
from torch import Tensor

from orchid.ops.precision import autocast_on


def check_choice(name: str, value: str, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    known = list(choices)
    if value not in known:
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(repr, known))}")
    return value


def check_at_least(name: str, value: int, minimum: int) -> int:
    """Return ``value`` if it is an integer of at least ``minimum``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name}={value!r} must be an integer of at least {minimum}")
    return int(value)


def check_seed(seed: int) -> int:
    """Return ``seed`` if random generators take it."""
    if check_at_least("seed", seed, 0) >= 1 << 64:
        raise ValueError(f"seed={seed} must be below 2^64")
    return seed


def check_fraction(name: str, value: float) -> float:
    """Return ``value`` if it lies in [0, 1)."""
    if not isinstance(value, Real) or not 0.0 <= value < 1.0:
        raise ValueError(f"{name}={value!r} must lie in [0, 1)")
    return value


def check_share(name: str, value: float) -> float:
    """Return ``value`` if it lies in [0, 1]: a share of a whole, or all of it."""
    if not isinstance(value, Real) or not 0.0 <= value <= 1.0:
        raise ValueError(f"{name}={value!r} must lie in [0, 1]")
    return value


def check_positive_or_zero(name: str, value: float) -> float:
    """Return ``value`` if it is a number of at least 0."""
    if not isinstance(value, Real) or not value >= 0.0:
        raise ValueError(f"{name}={value!r} must not be negative")
    return value


def check_positive(name: str, value: float) -> float:
    """Return ``value`` if it is a finite number above 0."""
    if not isinstance(value, Real) or not 0.0 < value < float("inf"):
        raise ValueError(f"{name}={value!r} must be a positive number")
    return value


def check_flag(name: str, value: bool) -> bool:
    """Return ``value`` if it is True or False, and not merely true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r} must be True or False")
    return value


def check_odd(name: str, value: int) -> int:
    """Return ``value`` if it is an odd integer of at least 1."""
    if check_at_least(name, value, 1) % 2 == 0:
        raise ValueError(f"{name}={value!r} must be odd")
    return int(value)


def check_tensor(name: str, x: Tensor) -> None:
    """Accept ``x`` only as a tensor."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; expected a tensor")


def _check_axes(name: str, x: Tensor, d_model: int, axes: tuple[str, ...]) -> None:
    """Accept ``x`` only as floating point with these axes, none of them empty, and d_model numbers along a last one."""
    check_tensor(name, x)
    shape = tuple(x.shape)
    if x.ndim != len(axes) + 1 or x.shape[-1] != d_model:
        raise ValueError(f"{name} has shape {shape}; expected ({', '.join(axes)}, d_model={d_model})")
    if not x.is_floating_point():
        raise ValueError(f"{name} has dtype {x.dtype}; expected a floating point tensor")
    if any(size < 1 for size in shape[:-1]):
        raise ValueError(f"{name} has shape {shape}; expected {' and '.join(axes)} of at least 1")


def check_sequence(name: str, x: Tensor, d_model: int, max_length: int) -> None:
    """Accept ``x`` only as (B, L, d_model) floating point with 1 <= L <= max_length."""
    _check_axes(name, x, d_model, ("batch", "length"))
    if x.shape[1] > max_length:
        raise ValueError(
            f"{name} has length {x.shape[1]}, longer than max_length={max_length}; "
            "build the layer with a larger max_length, or use resample() on a trained OrchidMixer"
        )


def check_dtype(name: str, x: Tensor, dtype: torch.dtype) -> None:
    """Accept ``x`` only in the layer's ``dtype``, or under autocast in any that autocast handles."""
    if x.dtype == dtype:
        return
    if not autocast_on(x):
        raise ValueError(f"{name} has dtype {x.dtype}; expected {dtype}, that of the layer (or use autocast)")
    if x.dtype == torch.float64:
        raise ValueError(f"{name} has dtype {x.dtype}, which autocast leaves alone; expected {dtype} or narrower")


def check_mask(name: str, mask: Tensor | None, x: Tensor) -> None:
    """Accept ``mask`` only as (B, L) bool beside ``x`` (B, L, D), True = real token."""
    if mask is None:
        return
    check_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} has dtype {mask.dtype}; expected torch.bool with True at real tokens")
    if mask.ndim != 2 or mask.shape[0] != x.shape[0] or mask.shape[1] != x.shape[1]:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected {tuple(x.shape[:2])} (batch, length)")
    if mask.device != x.device:
        raise ValueError(f"{name} is on {mask.device}; expected {x.device}, where its sequence is")


def check_image(name: str, x: Tensor, d_model: int, largest: tuple[int, int]) -> None:
    """Accept ``x`` only as (B, h, w, d_model) floating point, no side longer than that of the largest images."""
    _check_axes(name, x, d_model, ("batch", "height", "width"))
    _, height, width, _ = x.shape
    if height > largest[0] or width > largest[1]:
        raise ValueError(
            f"{name} is an image of {height} x {width}, larger than height={largest[0]} x width={largest[1]}"
        )


def check_image_mask(name: str, mask: Tensor | None, x: Tensor) -> None:
    """Accept ``mask`` only as (B, h, w) bool beside ``x`` (B, h, w, D), True = real pixel."""
    if mask is None:
        return
    check_tensor(name, mask)
    if mask.shape != x.shape[:3]:
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; expected {tuple(x.shape[:3])} (batch, height, width)")
    check_mask(name, mask.flatten(1), x.flatten(1, 2))


def check_context(context: Tensor | None, context_mask: Tensor | None, x: Tensor, conditioning: str) -> None:
    """Accept a context, or none, only where it conditions a kernel, for as many samples as ``x`` has."""
    if context is None:
        if context_mask is not None:
            raise ValueError("context_mask was given without context")
        return
    check_tensor("context", context)
    if conditioning == "static":
        raise ValueError("context was given, but conditioning='static' has no kernel to condition")
    if context.ndim and context.shape[0] != x.shape[0]:
        raise ValueError(f"context has batch {context.shape[0]}; expected that of x, {x.shape[0]}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
