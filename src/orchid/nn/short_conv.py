"""The paper's short Conv1d in time, as a module that knows about masks and the layer's length."""

import math

import torch
from torch import Tensor, nn

from orchid.ops.checks import check_choice
from orchid.ops.depthwise import depthwise_conv_time
from orchid.ops.kernels.surroundings import transformed

INITS = ("unit", "conv1d")


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
        init: how taps and biases start: "unit", taps of unit gain without a bias (a white input keeps its variance), or
            "conv1d", as ``torch.nn.Conv1d`` has them, which the published baselines use.
    """

    def __init__(
        self,
        channels: int,
        max_length: int,
        kernel_size: int,
        *,
        padding: str = "causal",
        bias: bool = True,
        init: str = "unit",
    ) -> None:
        super().__init__()
        self.init = check_choice("init", init, INITS)
        self.max_length = max_length
        self.padding = padding
        self.weight = nn.Parameter(torch.empty(channels, kernel_size))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw taps and biases."""
        if self.init == "conv1d":
            bound = 1 / math.sqrt(self.weight.shape[-1])
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -bound, bound)
            return
        unit_gain_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, pad: Tensor | None = None) -> Tensor:
        """Convolve x (B, D, L); ``pad`` (B, 1, L) is True at masked positions."""
        y = depthwise_conv_time(x, self.weight, self.bias, padding=self.padding, period=self.max_length)
        if pad is None:
            return y
        # in place, for nothing else reads it; transforms know y as a view
        return y.masked_fill_(pad, 0.0) if torch.compiler.is_compiling() or not transformed() else masked(y, pad)

    def extra_repr(self) -> str:
        """Show sizes in ``print(module)``."""
        channels, width = self.weight.shape
        return f"{channels}, kernel_size={width}, padding={self.padding!r}, bias={self.bias is not None}"
