"""CKConv: a continuous convolution kernel, a sinusoidal network of the relative position (Romero et al., 2022)."""

import math

import torch
from torch import Tensor, nn

from orchid.mixers.base import DIRECTIONS, SequenceMixer
from orchid.mixers.sine_network import SineNetwork
from orchid.nn.projections import from_channels, to_channels
from orchid.nn.short_conv import ShortConv, masked
from orchid.ops.checks import check_at_least, check_choice, check_flag, check_fraction, check_positive
from orchid.ops.long_conv import long_conv
from orchid.ops.precision import at_least_float32, full_precision


class CKConv(SequenceMixer):
    """y = W (psi conv x), depthwise, then a linear map across channels: the separable form.

    psi is a SIREN of the relative position in [-1, 1]: sin(w0 (W z + b)) twice, then a linear map. Causal
    (``direction="forward"``), lags 0 ... N - 1 are spread over that interval; used bidirectionally (the default) the
    lags -(N - 1) ... N - 1 are, so that one network sees both sides. Kernels are scaled by 1 / sqrt(N) to keep the
    variance of a white input. Weights are not normalised as the published ones are.

    ``window`` multiplies the kernel by a Gaussian of a learned width, exp(-(lag / width)² / 2) in units of N - 1
    positions, which starts at the number given: the kernels of FlexConv and CCNN (Romero et al., 2022; Knigge et al.,
    2023). It needs both directions, so that the Gaussian stands at lag 0.

    ``gated=True`` puts the convolution between two gates and behind short convolutions, x_2 * (psi conv (x_1 * v)): the
    form in which recall experiments of the literature compare kernels.

    Args:
        d_model: D.
        max_length: N.
        width: hidden size of the network.
        omega: w0 of its sines.
        window: see above; None is no window.
        gated: see above.
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
        width: int = 32,
        omega: float = 30.0,
        window: float | None = None,
        gated: bool = False,
        direction: str = "both",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, max_length)
        self.direction = check_choice("direction", direction, DIRECTIONS)
        check_positive("omega", omega)
        self.window: nn.Parameter | None = None
        if window is not None:
            if direction != "both":
                raise ValueError(f"window={window!r} needs direction='both', not {direction!r}")
            self.start = math.log(check_positive("window", window))
            self.window = nn.Parameter(torch.empty(1))
        self.in_proj: nn.Linear | None = None
        if check_flag("gated", gated):
            self.in_proj = nn.Linear(d_model, 3 * d_model)
            self.short_conv = ShortConv(3 * d_model, max_length, 3, init="conv1d")
        self.omega = omega
        inside = math.sqrt(6 / check_at_least("width", width, 1)) / omega
        # As for a SIREN: every sine sees arguments of the same spread, whatever the depth.
        self.psi = SineNetwork(1, width, 2, d_model, bias=True, bounds=(1.0, inside, inside))
        self.skip = nn.Parameter(torch.empty(d_model))
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start without a skip term, and with the given window."""
        nn.init.zeros_(self.skip)
        if self.window is not None:
            nn.init.constant_(self.window, self.start)

    def kernels(self, length: int) -> list[Tensor]:
        """Return the kernel of each side, (D, length): lags 0, 1, ..., then lags -1, -2, ..."""
        lag = torch.arange(length, device=self.skip.device, dtype=at_least_float32(self.skip).dtype)
        span = max(1, self.max_length - 1)
        sides = [2 * lag / span - 1] if self.direction == "forward" else [lag / span, -(lag + 1) / span]
        kernels = [self.psi(position[:, None], self.omega) / math.sqrt(self.max_length) for position in sides]
        if self.window is None:
            return kernels
        inverse = torch.exp(-at_least_float32(self.window))
        return [
            kernel * torch.exp(-(position * inverse).square() / 2)
            for kernel, position in zip(kernels, sides, strict=True)
        ]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix x along its length."""
        x, pad = self.admit(x, mask)
        if self.in_proj is None:
            return self.dropout(from_channels(self.out_proj, self._convolve(x.transpose(1, 2))))
        x1, x2, v = self.short_conv(masked(to_channels(self.in_proj, x), pad), pad).split(self.d_model, dim=1)
        return self.dropout(from_channels(self.out_proj, x2 * self._convolve(x1 * v)))

    def _convolve(self, v: Tensor) -> Tensor:
        with full_precision(v):
            kernels = self.kernels(v.shape[-1])
        return long_conv(v, *kernels) + v * self.skip.to(v.dtype)[:, None]
