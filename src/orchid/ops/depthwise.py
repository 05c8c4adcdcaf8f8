"""Short depthwise convolution, in time and over spectral bins; real taps, one filter per channel."""

import torch
import torch.nn.functional as F
from torch import Tensor

PADDINGS = ("causal", "same", "circular")


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
    channels, width = taps.shape
    length = x.shape[-1]
    if padding == "same":
        x = F.pad(x, (width // 2, width // 2))
    elif padding == "circular" and period - length < width - 1:
        turns = -(-(width - 1) // period)  # a long kernel on a short circle goes round more than once
        past = F.pad(x, (0, period - length)).repeat(1, 1, turns)
        x = torch.cat((past[..., turns * period - width + 1 :], x), dim=-1)
    else:
        x = F.pad(x, (width - 1, 0))
    return F.conv1d(x, taps.unsqueeze(1), bias, groups=channels)


def depthwise_conv_bins(z: Tensor, taps: Tensor) -> Tensor:
    """Return w[k] = sum_j taps[j] z[k - (K - 1) / 2 + j] over spectral bins, zeros outside the spectrum.

    Args:
        z: (B, D, F), real or complex; real and imaginary parts meet the same real taps.
        taps: (D, K), K odd.
    """
    channels, width = taps.shape
    if not z.is_complex():
        return F.conv1d(z, taps.unsqueeze(1), padding=width // 2, groups=channels)
    # Re and Im interleave along the last axis, so a dilation of two keeps them apart without a copy.
    parts = torch.view_as_real(z).flatten(-2)
    parts = F.conv1d(parts, taps.unsqueeze(1), padding=2 * (width // 2), dilation=2, groups=channels)
    return torch.view_as_complex(parts.unflatten(-1, (-1, 2)))
