"""Short depthwise convolution, in time and over spectral bins; real taps, one filter per channel."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

PADDINGS = ("causal", "same", "circular")


class _ValidConv(torch.autograd.Function):
    """y[t] = bias + sum_j taps[j] x[t + j * dilation] without padding, (B, D, L + (K - 1) dilation) -> (B, D, L).

    ``conv1d`` with a backward of its own: the library's gradient of a depthwise convolution is several times slower
    than one more convolution for the input and K products for the taps, on CPUs and on GPUs.
    """

    @staticmethod
    def forward(x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
        return F.conv1d(x, taps.unsqueeze(1), bias, groups=taps.shape[0], dilation=dilation)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None, int], output: Tensor) -> None:
        x, taps, _, ctx.dilation = inputs
        ctx.save_for_backward(x, taps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        (grad,), (x, taps), dilation = gradients, ctx.saved_tensors, ctx.dilation
        channels, width = taps.shape
        grad_x = grad_taps = grad_bias = None
        wide = torch.promote_types(grad.dtype, torch.float32)  # for sums over batch and time
        if ctx.needs_input_grad[0]:
            reach = dilation * (width - 1)
            flipped = taps.flip(-1).unsqueeze(1).to(grad.dtype)
            grad_x = F.conv1d(F.pad(grad, (reach, reach)), flipped, groups=channels, dilation=dilation).to(x.dtype)
        if ctx.needs_input_grad[1]:
            length = grad.shape[-1]
            columns = [
                (grad * x[..., j * dilation : j * dilation + length]).sum((0, 2), dtype=wide) for j in range(width)
            ]
            grad_taps = torch.stack(columns, dim=1).to(taps.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum((0, 2), dtype=wide).to(taps.dtype)
        return grad_x, grad_taps, grad_bias, None


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
    width = taps.shape[1]
    length = x.shape[-1]
    if padding == "same":
        x = F.pad(x, (width // 2, width // 2))
    elif padding == "circular" and period - length < width - 1:
        turns = -(-(width - 1) // period)  # a long kernel on a short circle goes round more than once
        past = F.pad(x, (0, period - length)).repeat(1, 1, turns)
        x = torch.cat((past[..., turns * period - width + 1 :], x), dim=-1)
    else:
        x = F.pad(x, (width - 1, 0))
    return _ValidConv.apply(x, taps, bias, 1)


def depthwise_conv_bins(z: Tensor, taps: Tensor) -> Tensor:
    """Return w[k] = sum_j taps[j] z[k - (K - 1) / 2 + j] over spectral bins, zeros outside the spectrum.

    Args:
        z: (B, D, F), real or complex; real and imaginary parts meet the same real taps.
        taps: (D, K), K odd.
    """
    edge = taps.shape[1] // 2
    if not z.is_complex():
        return _ValidConv.apply(F.pad(z, (edge, edge)), taps, None, 1)
    # Re and Im interleave along the last axis, so a dilation of two keeps them apart.
    parts = F.pad(torch.view_as_real(z).flatten(-2), (2 * edge, 2 * edge))
    parts = _ValidConv.apply(parts, taps, None, 2)
    return torch.view_as_complex(parts.unflatten(-1, (-1, 2)))
