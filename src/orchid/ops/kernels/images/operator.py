"""The layer of images between its projections, as one differentiable operator of the library.

p is kept for the backward pass, the rest computed again.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.images import around_fft
from orchid.ops.kernels.images.dense import path as dense
from orchid.ops.kernels.images.operands import Images
from orchid.ops.kernels.launch import on_device_of
from orchid.ops.kernels.library import operator
from orchid.ops.kernels.passes import by_channel
from orchid.ops.precision import full_precision


def fused_image_mix(
    p: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor,
    spatial: Tensor,
    spectral: Tensor,
    static: Tensor,
    size: tuple[int, int],
) -> Tensor:
    """Return y = s_2 * T^-1((h0_f + hx_f) T(s_1 * v)), with v, s_1, s_2 the short-convolved thirds of p.

    Args:
        p: (B, 3 D, H W), the projected streams before the projection's bias, contiguous along the last axis.
        offset: (3 D,), the projection's bias.
        weight: (3 D, K, K), taps of the short convolutions.
        bias: (3 D,).
        spatial: (sides, D, K, K), taps of Conv2d_t: none (static), one (phase) or two (cross: key, query).
        spectral: (D, K, K), taps of Conv2d_f; not read when static.
        static: (D, H, W / 2 + 1) complex64, the spectrum h0_f.
        size: H and W.

    Returns:
        (B, D, H W) in the dtype of p, stored channel by channel.
    """
    tensors = (t.contiguous() for t in (offset, weight, bias, spatial, spectral, torch.view_as_real(static)))
    return _mix(p if p.stride(2) == 1 else p.contiguous(), *tensors, *size)


@operator("image_mix")
def _mix(
    p: Tensor, offset: Tensor, weight: Tensor, bias: Tensor, spatial: Tensor, spectral: Tensor, static: Tensor,
    height: int, width: int,
) -> Tensor:  # fmt: skip
    given = Images(p, offset, weight, bias, spatial, spectral, static, height, width)
    y = by_channel(p, given.channels, p.shape[2])
    with on_device_of(p), full_precision(p):
        path_of(given).write(given, y)
    return y


@_mix.register_fake
def _(p, offset, weight, bias, spatial, spectral, static, height, width):  # type: ignore[no-untyped-def]
    return by_channel(p, p.shape[1] // 3, p.shape[2])


@operator("image_mix_backward")
def _mix_backward(
    dy: Tensor, p: Tensor, offset: Tensor, weight: Tensor, bias: Tensor, spatial: Tensor, spectral: Tensor,
    static: Tensor, height: int, width: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of p, offset, weight, bias, spatial, spectral and static."""
    given = Images(p, offset, weight, bias, spatial, spectral, static, height, width)
    dy = dy if dy.stride(2) == 1 else dy.contiguous()
    with on_device_of(p), full_precision(p):
        dp, doffset, dweight, dbias, dspatial, dspectral, dstatic = path_of(given, dy).gradients(given, dy)
    return dp, doffset, dweight, dbias, dspatial, dspectral, dstatic


def path_of(given: Images, dy: Tensor | None = None) -> ModuleType:
    """Return the module that takes the images, and dy backward, through its kernels."""
    return dense if dense.serves(given, dy) else around_fft


@_mix_backward.register_fake
def _(dy, p, offset, weight, bias, spatial, spectral, static, height, width):  # type: ignore[no-untyped-def]
    small = (torch.empty_like(t) for t in (offset, weight, bias, spatial, spectral, static))
    return by_channel(p, p.shape[1], p.shape[2]), *small


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, height, width = inputs
    ctx.save_for_backward(*tensors)
    ctx.size = height, width


def _back(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    return *_mix_backward(dy, *ctx.saved_tensors, *ctx.size), None, None


_mix.register_autograd(_back, setup_context=_keep)
