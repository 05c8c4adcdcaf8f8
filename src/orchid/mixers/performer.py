"""Performer: softmax attention in linear time by positive random features (Choromanski et al., 2021)."""

import math

import torch
from torch import Tensor, nn

from orchid.mixers.attention import attention_heads
from orchid.mixers.base import SequenceMixer
from orchid.ops.checks import check_at_least, check_fraction
from orchid.ops.precision import at_least_float32, full_precision

# Added to every feature, as in the published implementation: no query is without a key.
FLOOR = 1e-4


class Performer(SequenceMixer):
    """Bidirectional FAVOR+ attention: y = D^-1 (Q' (K'^T V)), D = Q' K'^T 1, Q' = phi(Q d^-1/4), K' = phi(K d^-1/4).

    phi(x) = exp(w x - |x|^2 / 2) / sqrt(m) for m random w, orthogonal in blocks of d: E[phi(q) phi(k)] = exp(q k), the
    kernel of softmax. The exponents are shifted by their largest value, per query and per sequence of keys, which
    leaves the ratio as it is. The random features are drawn once and stored with the model.

    Args:
        d_model: D.
        max_length: the longest input.
        heads: as in attention.
        features: m; by default d ln d for heads of size d.
        dropout: on the output.

    Shape:
        x (B, L, D), mask (B, L) bool or None -> (B, L, D).
    """

    features: Tensor

    def __init__(
        self,
        d_model: int,
        max_length: int,
        *,
        heads: int | None = None,
        features: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, max_length)
        self.heads = attention_heads(d_model, heads)
        size = d_model // self.heads
        count = max(1, int(size * math.log(size))) if features is None else check_at_least("features", features, 1)
        self.register_buffer("features", torch.empty(count, size))
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the features."""
        self.features.copy_(orthogonal_features(*self.features.shape))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend among the real tokens of x."""
        x, pad = self.admit(x, mask)
        q, k, v = self.in_proj(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        hidden = None if pad is None else pad[..., None]  # (B, 1, L, 1), beside (B, heads, L, m)
        with full_precision(x):
            q, k, v = (at_least_float32(t) for t in (q, k, v))
            query, key = self._exponents(q), self._exponents(k)
            if hidden is not None:
                key = key.masked_fill(hidden, -math.inf)
            query = torch.exp(query - query.amax(dim=-1, keepdim=True)) + FLOOR
            shift = key.amax(dim=(-2, -1), keepdim=True)
            key = torch.exp(key - shift.clamp_min(torch.finfo(shift.dtype).min)) + FLOOR
            if hidden is not None:
                key = key.masked_fill(hidden, 0.0)
            numerator = query @ (key.transpose(-1, -2) @ v)
            denominator = query @ key.sum(dim=-2).unsqueeze(-1)
            # A row without a single real token has no keys: finite, and nobody reads it.
            y = (numerator / denominator.clamp_min(torch.finfo(denominator.dtype).tiny)).to(x.dtype)
        return self.dropout(self.out_proj(y.transpose(1, 2).flatten(-2)))

    def _exponents(self, x: Tensor) -> Tensor:
        """Return w x - |x|^2 / 2 of the scaled x (..., L, d): (..., L, m)."""
        x = x * x.shape[-1] ** -0.25
        return x @ at_least_float32(self.features).T - x.square().sum(dim=-1, keepdim=True) / 2


def orthogonal_features(count: int, size: int) -> Tensor:
    """Return (count, size): Gaussian directions, orthogonal in blocks of ``size``, with Gaussian lengths."""
    blocks = -(-count // size)
    q, r = torch.linalg.qr(torch.randn(blocks, size, size, dtype=torch.float32))  # there is none in half precision
    # The factorisation fixes signs by its own convention; undone, every direction is uniform on the sphere.
    directions = (q * r.diagonal(dim1=1, dim2=2).sign()[:, None, :]).flatten(0, 1)[:count]
    return directions * torch.randn(count, size).norm(dim=1, keepdim=True)
