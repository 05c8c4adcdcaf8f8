"""The paper's short Conv1d in time, as a module that knows about masks and the layer's length."""

import math

import torch
from torch import Tensor, nn

from orchid.ops.depthwise import depthwise_conv_time


def masked(x: Tensor, pad: Tensor | None) -> Tensor:
    """Zero x (B, D, L) where ``pad`` (B, 1, L) is True; a fill, not a product, so that NaN does not survive."""
    return x if pad is None else x.masked_fill(pad, 0.0)


def unit_gain_(taps: Tensor) -> None:
    """Draw taps (..., K) uniform with variance 1 / K."""
    bound = math.sqrt(3 / taps.shape[-1])
    nn.init.uniform_(taps, -bound, bound)


class ShortConv(nn.Module):
    """Depthwise convolution of K taps along time, (B, D, L) -> (B, D, L), re-masked.

    y[t] = b + sum_j w[j] x[t - K + 1 + j] ("causal"), centred on t ("same"), or causal with the past wrapped at
    ``max_length`` ("circular").

    Args:
        channels: D.
        max_length: N, where "circular" wraps.
        kernel_size: K, odd.
        padding: "causal", "same" or "circular".
        bias: add a learned constant per channel.
    """

    def __init__(
        self, channels: int, max_length: int, kernel_size: int, *, padding: str = "causal", bias: bool = True
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.padding = padding
        self.weight = nn.Parameter(torch.empty(channels, kernel_size))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw taps of unit gain: a white input keeps its variance. Biases start at zero."""
        unit_gain_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, pad: Tensor | None = None) -> Tensor:
        """Convolve x (B, D, L); ``pad`` (B, 1, L) is True at masked positions."""
        y = depthwise_conv_time(x, self.weight, self.bias, padding=self.padding, period=self.max_length)
        return y if pad is None else y.masked_fill_(pad, 0.0)  # in place: nothing else reads it

    def extra_repr(self) -> str:
        """Show sizes in ``print(module)``."""
        channels, width = self.weight.shape
        return f"{channels}, kernel_size={width}, padding={self.padding!r}, bias={self.bias is not None}"


def conv1d_init_(conv: ShortConv) -> None:
    """Draw taps and biases as ``torch.nn.Conv1d`` does, which the published baselines use."""
    bound = 1 / math.sqrt(conv.weight.shape[-1])
    nn.init.uniform_(conv.weight, -bound, bound)
    if conv.bias is not None:
        nn.init.uniform_(conv.bias, -bound, bound)
