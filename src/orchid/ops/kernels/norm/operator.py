"""Normalisation over channels as an operator: one kernel forward, one and a sum backward.

The library's backward pass goes over the tokens twice, and its sums for the weights' gradients, of many tokens and few
channels, take longer than everything else in it: together with the forward pass a third of a step of Orchid-ViT.
"""

from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, on_device_of, power_of_two
from orchid.ops.kernels.library import operator
from orchid.ops.kernels.norm.kernels import norm_grad_kernel, norm_kernel
from orchid.ops.kernels.totals import added_up

# Channels that fit into the registers of a program.
WIDEST = 4096
# Numbers of a tile, and programs wanted in a launch, of the backward pass each with sums of its own.
TILE, FORWARD_PROGRAMS, BACKWARD_PROGRAMS = 2048, 8192, 1056


def normalised(x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """Return weight (x - mean) / sqrt(variance + eps) + bias over the last axis, computed in float32, as ``dtype``.

    Args:
        x: (..., D).
        weight: (D,).
        bias: (D,).
        eps: added to the variance.
        dtype: of the result.
    """
    y: Tensor = _norm(x.contiguous(), weight.contiguous(), bias.contiguous(), eps, dtype)[0]
    return y


@operator("layer_norm")
def _norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the result and (2, tokens): mean and 1 / deviation."""
    size, width = _sizes(x)
    y, moments = torch.empty_like(x, dtype=dtype), x.new_empty((2, size), dtype=torch.float32)
    rows, steps, parts = _shared_out(size, width, FORWARD_PROGRAMS)
    with on_device_of(x):
        norm_kernel[(parts,)](
            x, weight, bias, y, moments, size, width, eps, steps, ROWS=rows, WIDTH=power_of_two(width)
        )
    return y, moments


@_norm.register_fake
def _(x, weight, bias, eps, dtype):  # type: ignore[no-untyped-def]
    return torch.empty_like(x, dtype=dtype), x.new_empty((2, x.numel() // x.shape[-1]), dtype=torch.float32)


@operator("layer_norm_backward")
def _norm_backward(dy: Tensor, x: Tensor, weight: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of x, and those of weight and bias, (2, D)."""
    size, width = _sizes(x)
    dx, (rows, steps, parts) = torch.empty_like(x), _shared_out(size, width, BACKWARD_PROGRAMS)
    sums = x.new_empty((parts, 2, width), dtype=torch.float32)
    with on_device_of(x):
        norm_grad_kernel[(parts,)](
            dy.contiguous(), x, weight, moments, dx, sums, size, width, steps, ROWS=rows, WIDTH=power_of_two(width)
        )
        return dx, added_up(sums, weight.new_empty((2, width)))


@_norm_backward.register_fake
def _(dy, x, weight, moments):  # type: ignore[no-untyped-def]
    return torch.empty_like(x), weight.new_empty((2, x.shape[-1]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, bias, _, _ = inputs
    ctx.set_materialize_grads(False)  # the moments have no gradient of their own
    ctx.save_for_backward(x, weight, output[1])
    ctx.bias = bias.dtype


def _back(ctx: Any, dy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 5
    dx, (dweight, dbias) = _norm_backward(dy, *ctx.saved_tensors)
    return dx, dweight, dbias.to(ctx.bias), None, None


_norm.register_autograd(_back, setup_context=_keep)


def _sizes(x: Tensor) -> tuple[int, int]:
    width = x.shape[-1]
    return x.numel() // width, width


def _shared_out(size: int, width: int, programs: int) -> tuple[int, int, int]:
    """Return tokens of a tile, tiles that a program goes through, and programs."""
    rows = max(1, TILE // power_of_two(width))
    tiles = max(1, cdiv(size, rows))
    steps = cdiv(tiles, programs)
    return rows, steps, cdiv(tiles, steps)
