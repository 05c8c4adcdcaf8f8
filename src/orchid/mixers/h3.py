"""H3: a shift and a diagonal state-space model between multiplications (Fu et al., 2023)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.mixers.base import DIRECTIONS, SequenceMixer
from orchid.mixers.state_space import DiagonalSSM
from orchid.nn.projections import from_channels, to_channels
from orchid.nn.short_conv import masked
from orchid.ops.checks import check_at_least, check_choice, check_fraction
from orchid.ops.long_conv import long_conv


class ShiftSSM(nn.Module):
    """x[t] = S x[t-1] + e_1 u[t], y = C x + skip u, with S the shift matrix: the state holds the last inputs.

    As a convolution its kernel is C itself, ``state`` taps long. Used bidirectionally there is a second C for the
    inputs to come.

    Args:
        channels: D.
        state: inputs remembered.
        direction: "both" or "forward".

    Shape:
        (B, D, L) -> (B, D, L).
    """

    def __init__(self, channels: int, *, state: int, direction: str) -> None:
        super().__init__()
        sides = 2 if check_choice("direction", direction, DIRECTIONS) == "both" else 1
        self.output = nn.Parameter(torch.empty(sides, channels, state))
        self.skip = nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw C and the skip term normal."""
        nn.init.normal_(self.output)
        nn.init.normal_(self.skip)

    def forward(self, u: Tensor) -> Tensor:
        """Convolve u (B, D, L)."""
        kernels = F.pad(self.output, (0, max(0, u.shape[-1] - self.output.shape[-1])))
        return long_conv(u, *kernels) + u * self.skip.to(u.dtype)[:, None]


class H3(SequenceMixer):
    """y = W_o (Q * SSM_diag(SSM_shift(K) * V)) with Q, K, V projections of x; per head an outer product of K and V.

    With heads of size d_h the product of K and V is the d_h x d_h outer product, each entry of which goes through the
    head's diagonal state-space model, and Q is applied to it. The published layer is causal (``direction="forward"``);
    used bidirectionally (the default) both state-space models are two-sided convolutions.

    Args:
        d_model: D.
        max_length: the longest input; the model itself has no limit.
        head_size: d_h, a divisor of d_model; 1 multiplies element by element.
        state: size of the state of both state-space models.
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
        head_size: int = 1,
        state: int = 64,
        direction: str = "both",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, max_length)
        if d_model % check_at_least("head_size", head_size, 1):
            raise ValueError(f"head_size={head_size} must divide d_model={d_model}")
        self.head_size = head_size
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.shift = ShiftSSM(d_model, state=state, direction=direction)
        self.diagonal = DiagonalSSM(d_model // head_size, state=state, direction=direction)
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix x along its length."""
        x, pad = self.admit(x, mask)
        q, k, v = masked(to_channels(self.in_proj, x), pad).split(self.d_model, dim=1)
        k = masked(self.shift(k), pad)
        q, k, v = (t.unflatten(1, (-1, self.head_size)) for t in (q, k, v))  # (B, heads, d_h, L)
        pairs = torch.einsum("bhil,bhjl->bijhl", k, v)
        y = torch.einsum("bhil,bijhl->bhjl", q, self.diagonal(pairs)).flatten(1, 2)
        return self.dropout(from_channels(self.out_proj, y))
