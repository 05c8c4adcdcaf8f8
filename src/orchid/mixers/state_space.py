"""The convolution kernel of a diagonal state-space model (S4D; Gu et al., 2022), which S4 and H3 share."""

import math

import torch
from torch import Tensor, nn

from orchid.mixers.base import DIRECTIONS
from orchid.ops.checks import check_at_least, check_choice
from orchid.ops.long_conv import long_conv
from orchid.ops.precision import at_least_float32, full_precision

# Step sizes are drawn log-uniform between these.
SHORTEST_STEP, LONGEST_STEP = 1e-3, 1e-1


class DiagonalSSM(nn.Module):
    """x' = A x + B u, y = Re(C x) + skip u, A diagonal and complex, held constant over steps dt (zero-order hold).

    As a convolution, y = K conv u + skip u, with

        K[l] = 2 Re sum_n C_n (exp(dt A_n) - 1) / A_n exp(dt A_n l),      B = 1,

    one conjugate of each pair kept: ``state`` counts both. A starts as S4D-Lin, A_n = -1/2 + i pi n. Used
    bidirectionally (``direction="both"``) there is a second C for the sequence read backwards, as in S4; A and dt
    are shared. Complex parameters are stored as pairs of reals.

    Args:
        channels: D, one state-space model each.
        state: size of the state, even.
        direction: "both" or "forward".

    Shape:
        (..., D, L) -> (..., D, L).
    """

    def __init__(self, channels: int, *, state: int, direction: str) -> None:
        super().__init__()
        if check_at_least("state", state, 2) % 2:
            raise ValueError(f"state={state} must be even: it is made of conjugate pairs")
        sides = 2 if check_choice("direction", direction, DIRECTIONS) == "both" else 1
        pairs = state // 2
        self.log_step = nn.Parameter(torch.empty(channels))
        self.log_decay = nn.Parameter(torch.empty(channels, pairs))
        self.frequency = nn.Parameter(torch.empty(channels, pairs))
        self.output = nn.Parameter(torch.empty(sides, channels, pairs, 2))
        self.skip = nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start as S4D-Lin, with steps drawn log-uniform, C and the skip term normal."""
        nn.init.uniform_(self.log_step, math.log(SHORTEST_STEP), math.log(LONGEST_STEP))
        nn.init.constant_(self.log_decay, math.log(0.5))
        self.frequency.copy_(math.pi * torch.arange(self.frequency.shape[1], device=self.frequency.device))
        nn.init.normal_(self.output, std=math.sqrt(0.5))
        nn.init.normal_(self.skip)

    def kernels(self, length: int) -> Tensor:
        """Return (sides, D, length): lags 0, 1, ..., then lags -1, -2, ..."""
        step = at_least_float32(self.log_step).exp()[:, None]
        a = torch.complex(-at_least_float32(self.log_decay).exp(), at_least_float32(self.frequency))  # (D, pairs)
        lag = torch.arange(length, device=a.device, dtype=step.dtype)
        powers = torch.exp((step * a)[..., None] * lag)  # (D, pairs, length)
        c = torch.view_as_complex(at_least_float32(self.output)) * (torch.exp(step * a) - 1) / a
        # Re(c p) = Re c Re p - Im c Im p: two real products instead of one complex one.
        kernel = torch.einsum("sdn,dnl->sdl", c.real, powers.real) - torch.einsum("sdn,dnl->sdl", c.imag, powers.imag)
        return 2 * kernel

    def forward(self, u: Tensor) -> Tensor:
        """Convolve u (..., D, L)."""
        with full_precision(u):
            kernels = self.kernels(u.shape[-1])
        return long_conv(u, *kernels) + u * self.skip.to(u.dtype)[:, None]
