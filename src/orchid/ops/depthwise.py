"""Short depthwise convolution, in time and over spectral bins; real taps, one filter per channel."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from orchid.ops.forward_mode import applied

PADDINGS = ("causal", "same", "circular")


class _DepthwiseConv(torch.autograd.Function):
    """y[t] = bias + sum_j taps[j] x[t - left + j * dilation], with zeros outside x.

    ``conv1d`` with a backward of its own. The library's gradient of a depthwise convolution is several times slower
    than one more convolution for the input and K products for the taps; and it would keep the padded copy of x,
    where this one keeps x, which the caller holds anyway.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, taps: Tensor, bias: Tensor | None, padding: tuple[int, int], dilation: int) -> Tensor:
        return F.conv1d(F.pad(x, padding), taps.unsqueeze(1), bias, groups=taps.shape[0], dilation=dilation)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, taps, _, ctx.padding, ctx.dilation = inputs
        ctx.save_for_backward(x, taps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (x, taps), (left, right), dilation = gradients, ctx.saved_tensors, ctx.padding, ctx.dilation
        channels, width = taps.shape
        reach = dilation * (width - 1)
        wide = torch.promote_types(grad.dtype, torch.float32)  # for sums over batch and time
        grad_x = grad_taps = grad_bias = None
        if ctx.needs_input_grad[0]:
            flipped = taps.flip(-1).unsqueeze(1).to(grad.dtype)
            padded = F.pad(grad, (reach - left, reach - right))
            grad_x = F.conv1d(padded, flipped, groups=channels, dilation=dilation).to(x.dtype)
        if ctx.needs_input_grad[1]:
            padded, length = F.pad(x, (left, right)), grad.shape[-1]
            shifted = (padded[..., j * dilation : j * dilation + length] for j in range(width))
            columns = [(grad.to(wide) * each).sum((0, 2)) for each in shifted]
            grad_taps = torch.stack(columns, dim=1).to(taps.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum((0, 2), dtype=wide).to(taps.dtype)
        return grad_x, grad_taps, grad_bias, None, None


def depthwise_conv_time(
    x: Tensor, taps: Tensor, bias: Tensor | None = None, *, padding: str = "causal", period: int
) -> Tensor:
    """Return y[t] = bias + sum_j taps[j] x[t - K + 1 + j], or the same centred on t for ``padding="same"``.

    Args:
        x: (B, D, L) with L <= period; positions L ... period - 1 count as zero.
        taps: (D, K); the last tap meets the current position (the middle one for "same").
        bias: (D,) or None.
        padding: "causal" and "same" see zeros outside the sequence; "circular" is causal with the past wrapped at
            ``period``, so that the layer commutes with circular shifts.
        period: N, where "circular" wraps.
    """
    width, length = taps.shape[1], x.shape[-1]
    if padding == "same":
        return applied(_DepthwiseConv, x, taps, bias, (width // 2, width // 2), 1)
    if padding == "circular" and period - length < width - 1:
        turns = -(-(width - 1) // period)  # a long kernel on a short circle goes round more than once
        past = F.pad(x, (0, period - length)).repeat(1, 1, turns)
        x = torch.cat((past[..., turns * period - width + 1 :], x), dim=-1)
        return applied(_DepthwiseConv, x, taps, bias, (0, 0), 1)
    return applied(_DepthwiseConv, x, taps, bias, (width - 1, 0), 1)


def depthwise_conv_bins(z: Tensor, taps: Tensor) -> Tensor:
    """Return w[k] = sum_j taps[j] z[k - (K - 1) / 2 + j] over spectral bins, zeros outside the spectrum.

    Args:
        z: (B, D, F), real or complex; real and imaginary parts meet the same real taps.
        taps: (D, K), K odd.
    """
    edge = taps.shape[1] // 2
    if not z.is_complex():
        return applied(_DepthwiseConv, z, taps, None, (edge, edge), 1)
    # Re and Im interleave along the last axis, so a dilation of two keeps them apart.
    parts = torch.view_as_real(z).flatten(-2)
    parts = applied(_DepthwiseConv, parts, taps, None, (2 * edge, 2 * edge), 2)
    return torch.view_as_complex(parts.unflatten(-1, (-1, 2)))
