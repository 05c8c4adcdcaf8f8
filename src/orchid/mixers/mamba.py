"""Mamba: a state-space model whose step and matrices depend on the input, by parallel scan (Gu and Dao, 2023)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.mixers.base import DIRECTIONS, SequenceMixer
from orchid.nn.short_conv import ShortConv
from orchid.ops.checks import check_at_least, check_choice, check_fraction
from orchid.ops.precision import at_least_float32, full_precision
from orchid.ops.scan import linear_scan

SHORTEST_STEP, LONGEST_STEP = 1e-3, 1e-1


class StepProjection(nn.Linear):
    """W_dt and b: the bias is what softplus turns into step sizes drawn log-uniform."""

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw both."""
        bound = self.in_features**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        step = torch.empty_like(self.bias).uniform_(math.log(SHORTEST_STEP), math.log(LONGEST_STEP))
        step = step.exp().clamp_min(1e-4)
        self.bias.copy_(step + torch.log(-torch.expm1(-step)))


class SelectiveSSM(nn.Module):
    """Short convolution, SiLU, then the selective scan, with E channels and a state of n for each:

        dt = softplus(W_dt (W_d u) + b),   B = W_B u,   C = W_C u,   A = -exp(a),
        s[t] = exp(dt[t] A) s[t-1] + dt[t] B[t] u[t],    y[t] = C[t] s[t] + skip u[t].

    Args:
        channels: E.
        max_length: the longest input.
        state: n.
        rank: rows of W_d.
        kernel_size: taps of the short convolution.

    Shape:
        (B, E, L) -> (B, E, L); what is masked in the input is masked after the short convolution too.
    """

    def __init__(self, channels: int, max_length: int, *, state: int, rank: int, kernel_size: int) -> None:
        super().__init__()
        self.state, self.rank = state, rank
        self.short_conv = ShortConv(channels, max_length, kernel_size, init="conv1d")
        self.x_proj = nn.Linear(channels, rank + 2 * state, bias=False)
        self.dt_proj = StepProjection(rank, channels)
        self.log_decay = nn.Parameter(torch.empty(channels, state))
        self.skip = nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Start with A = -1, -2, ... and a skip term of one; the projections draw their own."""
        state = torch.arange(1, self.state + 1, device=self.log_decay.device)
        self.log_decay.copy_(state.log())
        nn.init.ones_(self.skip)

    def forward(self, u: Tensor, pad: Tensor | None = None) -> Tensor:
        """Scan u (B, E, L) from left to right; ``pad`` (B, 1, L) is True at masked positions."""
        u = F.silu(self.short_conv(u, pad)).transpose(1, 2)  # (B, L, E)
        d, b, c = self.x_proj(u).split([self.rank, self.state, self.state], dim=-1)
        dt = self.dt_proj(d)
        with full_precision(u):
            dt, b, c, wide = (at_least_float32(t) for t in (F.softplus(dt), b, c, u))
            a = -at_least_float32(self.log_decay).exp()
            decay = torch.exp(dt[..., None] * a)  # (B, L, E, n)
            s = linear_scan(decay, (dt * wide)[..., None] * b[:, :, None, :])
            y = torch.einsum("blen,bln->ble", s, c) + wide * self.skip
        return y.to(u.dtype).transpose(1, 2)


class Mamba(SequenceMixer):
    """y = W_o (SSM(x') * SiLU(z)) with (x', z) = W_i x and SSM the selective state-space model.

    The published layer is causal (``direction="forward"``). Used bidirectionally (the default) a second selective SSM
    with its own parameters reads the sequence backwards and the two are added before the gate; the projections are
    shared.

    Args:
        d_model: D.
        max_length: the longest input; the model itself has no limit.
        state: n, size of the state of each channel.
        expansion: E / D.
        kernel_size: taps of the short convolution.
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
        state: int = 16,
        expansion: int = 2,
        kernel_size: int = 4,
        direction: str = "both",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, max_length)
        check_at_least("state", state, 1)
        check_at_least("kernel_size", kernel_size, 1)
        inner = check_at_least("expansion", expansion, 1) * d_model
        sides = 2 if check_choice("direction", direction, DIRECTIONS) == "both" else 1
        self.in_proj = nn.Linear(d_model, 2 * inner, bias=False)
        self.sides = nn.ModuleList(
            SelectiveSSM(inner, max_length, state=state, rank=math.ceil(d_model / 16), kernel_size=kernel_size)
            for _ in range(sides)
        )
        self.out_proj = nn.Linear(inner, d_model, bias=False)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix x along its length."""
        x, pad = self.admit(x, mask)
        u, z = self.in_proj(x).chunk(2, dim=-1)
        u = u.transpose(1, 2)
        forward, *backward = self.sides
        y = forward(u, pad)
        for side in backward:
            y = y + side(u.flip(-1), None if pad is None else pad.flip(-1)).flip(-1)
        return self.dropout(self.out_proj(y.transpose(1, 2) * F.silu(z)))
