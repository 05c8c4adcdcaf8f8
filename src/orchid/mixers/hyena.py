"""Hyena: gates and implicit long convolutions in turn (Poli et al., 2023)."""

import math

import torch
from torch import Tensor, nn

from orchid.mixers.base import DIRECTIONS, SequenceMixer
from orchid.mixers.sine_network import SineNetwork
from orchid.nn.projections import from_channels, to_channels
from orchid.nn.short_conv import ShortConv, masked
from orchid.ops.checks import check_at_least, check_choice, check_fraction, check_odd
from orchid.ops.long_conv import long_conv
from orchid.ops.precision import at_least_float32, full_precision

SINE_LAYERS = 3
# A channel's kernel falls to 1 % after this share of max_length: from the slowest channel to the fastest.
SLOWEST, FASTEST = 1.5, 0.3


class HyenaFilter(nn.Module):
    """h[d, t] = FFN(PosEmb(t))[d] * exp(-rate_d t / (N - 1)), and the skip term of its convolution.

    PosEmb(t) = (t / (N - 1), cos(2 pi f t / N), -sin(2 pi f t / N)) with frequencies f evenly spaced from 1e-4; the FFN
    has sine activations that share one learned vector of frequencies. ``direction="both"`` has a second FFN for
    negative lags, as Monarch-Mixer has.

    Args:
        channels: D.
        max_length: N.
        embedding: size of PosEmb, odd, at least 3.
        width: hidden size of the FFN.
        frequency: initial frequency of the sines.
        direction: "forward" (lags 0 ... N - 1) or "both".

    Shape:
        (B, D, L) -> (B, D, L).
    """

    def __init__(
        self, channels: int, max_length: int, *, embedding: int, width: int, frequency: float, direction: str
    ) -> None:
        super().__init__()
        if check_odd("filter_embedding", embedding) < 3:
            raise ValueError(f"filter_embedding={embedding} must be at least 3")
        check_at_least("filter_width", width, 1)
        self.channels, self.max_length, self.embedding = channels, max_length, embedding
        sides = 2 if check_choice("direction", direction, DIRECTIONS) == "both" else 1
        self.sides = nn.ModuleList(
            SineNetwork(embedding, width, SINE_LAYERS, channels, bias=False) for _ in range(sides)
        )
        self.start = float(frequency)
        self.frequency, self.skip = nn.Parameter(torch.empty(width)), nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the skip term; the sines start at one frequency. The networks draw their own."""
        nn.init.constant_(self.frequency, self.start)
        nn.init.normal_(self.skip)

    def kernels(self, length: int) -> list[Tensor]:
        """Return the kernel of each side, (D, length): lags 0, 1, ..., then lags -1, -2, ..."""
        n, dtype = self.max_length, at_least_float32(self.skip).dtype
        t = torch.arange(length, device=self.skip.device, dtype=dtype)
        bands = (self.embedding - 1) // 2
        angle = t[:, None] * torch.linspace(1e-4, bands - 1, bands, device=t.device, dtype=dtype) * (2 * math.pi / n)
        share = t / max(1, n - 1)
        embedding = torch.cat((share[:, None], angle.cos(), -angle.sin()), dim=1)
        slow, fast = math.log(100) / SLOWEST, math.log(100) / FASTEST
        rate = torch.linspace(slow, fast, self.channels, device=t.device, dtype=dtype)
        decay = torch.exp(-rate[:, None] * share)
        frequency = at_least_float32(self.frequency)
        return [side(embedding, frequency) * decay for side in self.sides]

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x (B, D, L)."""
        with full_precision(x):
            kernels = self.kernels(x.shape[-1])
        return long_conv(x, *kernels) + x * self.skip.to(x.dtype)[:, None]


class Hyena(SequenceMixer):
    """y = x_0 * (h_(m-1) conv (x_1 * ... (h_1 conv (x_(m-1) * v)))) between two projections: the recurrence of order m.

    x_0 ... x_(m-1) and v are projections of x, each through a short causal convolution. The published operator is
    causal (``direction="forward"``). Used bidirectionally (the default) every long convolution is two-sided, with a
    second filter network for negative lags; gates and short convolutions stay as they are.

    Args:
        d_model: D.
        max_length: N, the grid of the implicit filters.
        order: m, at least 2.
        kernel_size: taps of the short convolution.
        filter_embedding: size of the filter's positional embedding.
        filter_width: hidden size of the filter's network.
        frequency: initial frequency of the filter's sines.
        direction: "both" or "forward".
        dropout: on the output.

    Shape:
        x (B, L, D), mask (B, L) bool or None -> (B, L, D).
    """

    def __init__(
        self,
        d_model: int,
        max_length: int,
        *,
        order: int = 2,
        kernel_size: int = 3,
        filter_embedding: int = 5,
        filter_width: int = 64,
        frequency: float = 10.0,
        direction: str = "both",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, max_length)
        self.order = check_at_least("order", order, 2)
        self.direction = check_choice("direction", direction, DIRECTIONS)
        self.in_proj = nn.Linear(d_model, (order + 1) * d_model)
        taps = check_at_least("kernel_size", kernel_size, 1)
        self.short_conv = ShortConv((order + 1) * d_model, max_length, taps, init="conv1d")
        self.filters = nn.ModuleList(self._filter(filter_embedding, filter_width, frequency) for _ in range(order - 1))
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))

    def _filter(self, embedding: int, width: int, frequency: float) -> HyenaFilter:
        return HyenaFilter(
            self.d_model,
            self.max_length,
            embedding=embedding,
            width=width,
            frequency=frequency,
            direction=self.direction,
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix x along its length."""
        x, pad = self.admit(x, mask)
        streams = self.short_conv(masked(to_channels(self.in_proj, x), pad), pad)
        first, *gates, v = streams.split(self.d_model, dim=1)
        for gate, conv in zip(reversed(gates), self.filters, strict=True):
            v = masked(conv(v * gate), pad)
        return self.dropout(from_channels(self.out_proj, first * v))
