"""Softmax attention, the mixer Orchid is measured against."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.mixers.base import SequenceMixer
from orchid.nn.short_conv import ShortConv, masked
from orchid.ops.checks import check_at_least, check_flag, check_fraction
from orchid.ops.precision import at_least_float32

ROTARY_BASE = 10000.0


class Attention(SequenceMixer):
    """Bidirectional multi-head attention, y = SoftMax(Q K^T / sqrt(d)) V, by scaled_dot_product_attention.

    Args:
        d_model: D.
        max_length: the longest input; attention itself has no limit, the contract has.
        heads: number of heads, a divisor of d_model. By default the largest divisor up to max(1, d_model // 64).
        rotary: turn queries and keys by their positions (RoPE), so that scores see distances; even head size.
        short_conv: taps of a causal depthwise convolution on q, k and v, as Orchid and its kin have; 0 is none.
        dropout: on the attention weights and on the output.

    Shape:
        x (B, L, D), mask (B, L) bool or None -> (B, L, D).
    """

    def __init__(
        self,
        d_model: int,
        max_length: int,
        *,
        heads: int | None = None,
        rotary: bool = False,
        short_conv: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_model, max_length)
        self.heads = attention_heads(d_model, heads)
        if check_flag("rotary", rotary) and (d_model // self.heads) % 2:
            raise ValueError(f"rotary=True needs an even head size, not d_model={d_model} / heads={self.heads}")
        self.rotary = rotary
        taps = check_at_least("short_conv", short_conv, 0)
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.short_conv = ShortConv(3 * d_model, max_length, taps) if taps else None
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend among the real tokens of x; the output at masked positions has no meaning."""
        x, pad = self.admit(x, mask)
        keys = None
        if mask is not None:
            # A row without a single real token attends to its zeros: finite, and nobody reads it.
            keys = (mask | ~mask.any(dim=1, keepdim=True))[:, None, None, :]
        streams = self.in_proj(x)
        if self.short_conv is not None:
            streams = masked(streams.transpose(1, 2).contiguous(), pad)
            streams = self.short_conv(streams, pad).transpose(1, 2).contiguous()  # fused attention reads rows
        q, k, v = streams.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = rotate(q), rotate(k)
        dropout = self.dropout.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keys, dropout_p=dropout)
        return self.dropout(self.out_proj(y.transpose(1, 2).flatten(-2)))


def attention_heads(d_model: int, heads: int | None) -> int:
    """Return the number of heads: the one asked for, or the largest divisor of d_model up to max(1, d_model // 64)."""
    if heads is None:
        heads = max(1, d_model // 64)
        while d_model % heads:
            heads -= 1
    elif d_model % check_at_least("heads", heads, 1):
        raise ValueError(f"heads={heads} must divide d_model={d_model}")
    return heads


def rotate(x: Tensor) -> Tensor:
    """Return x (..., L, d) with the pair (2 i, 2 i + 1) turned by t / 10000^(2 i / d) at position t."""
    length, size = x.shape[-2:]
    wide = at_least_float32(x).dtype  # positions do not survive bfloat16
    rate = ROTARY_BASE ** (-torch.arange(0, size, 2, device=x.device, dtype=wide) / size)
    angle = torch.arange(length, device=x.device, dtype=wide)[:, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
