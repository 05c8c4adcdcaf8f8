"""The sine network of an implicit filter as one differentiable operator of the library.

Two launches forward and three backward where layer after layer takes nearly sixty, each of which costs a GPU as much as
a kernel of a thousand lags: at batch 1 and short lengths they were half of a training step.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, on_device_of, power_of_two
from orchid.ops.kernels.library import operator
from orchid.ops.kernels.static.layers import sine_layer_grad_kernel, sine_layer_kernel, sine_totals_kernel

# The largest embedding whose products fit shared memory anywhere.
WIDEST_EMBEDDING = 64
# Programs that sum over lags, and shares of them that are added up at a time.
PARTS, PARTS_AT_ONCE = 256, 32


def sines(
    weights: Iterable[Tensor],
    biases: Iterable[Tensor],
    frequency: Tensor,
    lags: list[int],
    units: list[float],
    *,
    half: bool = False,
) -> Tensor:
    """Return the network before its output, (n, W) float32, at all lags of a circle, or of a torus row by row.

    Args:
        weights: (W, E), (W, W), (W, W); E is the size of an axis' embedding times their number.
        biases: (W,) each.
        frequency: (W,).
        lags: the number of lags of every axis.
        units: a lag of one position of every axis, in half grids.
        half: whether gradients need no more than bfloat16's precision.
    """
    layers = (t.contiguous() for layer in zip(weights, biases, strict=True) for t in layer)
    hidden, _, _ = _sines(*layers, frequency.contiguous(), lags, units, half)
    return hidden


@operator("sines")
def _sines(
    w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, w3: Tensor, b3: Tensor, frequency: Tensor,
    lags: list[int], units: list[float], half: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return z_3, x_2 and x_3, (n, W)."""
    (width, embedding), n = w1.shape, math.prod(lags)
    x2 = w1.new_empty((n, width), dtype=torch.float32)
    x3, z3 = torch.empty_like(x2), torch.empty_like(x2)
    sizes, places = _sizes(width, embedding, len(lags)), _places(lags, units)
    grid = (cdiv(n, sizes["ROWS"]), cdiv(width, sizes["BLOCK"]))
    with on_device_of(w1):
        sine_layer_kernel[grid](
            x2, w1, b1, w2, b2, frequency, x2, x2, n, *places, width, SECOND=True, LAST=False, **sizes
        )  # fmt: skip
        sine_layer_kernel[grid](
            x2, w1, b1, w3, b3, frequency, x3, z3, n, *places, width, SECOND=False, LAST=True, **sizes
        )  # fmt: skip
    return z3, x2, x3


@_sines.register_fake
def _(w1, b1, w2, b2, w3, b3, frequency, lags, units, half):  # type: ignore[no-untyped-def]
    z3 = w1.new_empty((math.prod(lags), w1.shape[0]), dtype=torch.float32)
    return z3, torch.empty_like(z3), torch.empty_like(z3)


@operator("sines_backward")
def _sines_backward(
    dz3: Tensor, x2: Tensor, x3: Tensor,
    w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, w3: Tensor, b3: Tensor, frequency: Tensor,
    lags: list[int], units: list[float], half: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of the parameters."""
    (width, embedding), n = w1.shape, x2.shape[0]
    places = _places(lags, units)
    sizes = {**_sizes(width, embedding, len(lags), backward=True), "WIDTH": power_of_two(max(16, width))}
    precision = "tf32" if half else "tf32x3"
    tiles = cdiv(n, sizes["ROWS"])
    steps = cdiv(tiles, PARTS)
    parts = cdiv(tiles, steps)
    row = 2 * width + embedding + 3
    dx2, shares = torch.empty_like(x2), x2.new_empty((parts, width, row))
    grads = _like(w1, b1, w2, b2, w3, b3, frequency)
    with on_device_of(w1):
        grid = (parts, cdiv(width, sizes["BLOCK"]))
        sine_layer_grad_kernel[grid](
            dz3.contiguous(), x3, x2, w1, b1, w3, frequency, dx2, shares, n, *places, width, steps,
            SECOND=False, LAST=True, PRECISION=precision, **sizes,
        )  # fmt: skip
        sine_layer_grad_kernel[grid](
            dx2, x2, x2, w1, b1, w2, frequency, dx2, shares, n, *places, width, steps,
            SECOND=True, LAST=False, PRECISION=precision, **sizes,
        )  # fmt: skip
        sine_totals_kernel[(width,)](
            shares, frequency, w1, b1, w2, b2, w3, b3, grads[6], *grads[:6], parts, width,
            EMBEDDING=embedding, COLUMNS=power_of_two(row), PARTS=PARTS_AT_ONCE,
        )  # fmt: skip
    return grads


@_sines_backward.register_fake
def _(dz3, x2, x3, w1, b1, w2, b2, w3, b3, frequency, lags, units, half):  # type: ignore[no-untyped-def]
    return _like(w1, b1, w2, b2, w3, b3, frequency)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *parameters, lags, units, half = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:], *parameters)
    ctx.settings = lags, units, half


def _back(ctx: Any, dz3: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    if dz3 is None:
        return (None,) * 10
    return *_sines_backward(dz3, *ctx.saved_tensors, *ctx.settings), None, None, None


_sines.register_autograd(_back, setup_context=_keep)


def _like(*tensors: Tensor) -> Any:
    return tuple(torch.empty_like(t) for t in tensors)


def _places(lags: list[int], units: list[float]) -> tuple[int, float, int, float]:
    """Return number and unit of both axes; of one alone, the second has a single lag."""
    (down, *across), (unit, *across_unit) = lags, units
    return down, unit, *(across or (1,)), *(across_unit or (0.0,))


def _sizes(width: int, embedding: int, axes: int, *, backward: bool = False) -> dict[str, int]:
    """Return the constants of the layers' kernels: the wider, the fewer lags and outputs at a time, or they spill.

    A program of the backward pass has all inputs of its lags, and is worth its while for many outputs.
    """
    rows, block, warps = (16, 16, 8) if width > 128 else (16, 64, 4) if width > 64 or backward else (32, 32, 4)
    if width > 64 and embedding > 32:  # shared memory of small GPUs
        block = min(block, 32)
    return {
        "AXES": axes, "EMBEDDING": embedding, "COLUMNS": power_of_two(max(16, embedding)),
        "ROWS": rows, "BLOCK": block, "num_warps": warps, "num_stages": 1,
    }  # fmt: skip
