"""Softmax attention, the mixer Orchid is measured against."""

import torch.nn.functional as F
from torch import Tensor, nn

from orchid.ops.checks import check_at_least, check_dtype, check_fraction, check_mask, check_sequence


class Attention(nn.Module):
    """Bidirectional multi-head attention, y = SoftMax(Q K^T / sqrt(d)) V, by scaled_dot_product_attention.

    Args:
        d_model: D.
        max_length: the longest input; attention itself has no limit, the contract has.
        heads: number of heads, a divisor of d_model. By default the largest divisor up to max(1, d_model // 64).
        dropout: on the attention weights and on the output.

    Shape:
        x (B, L, D), mask (B, L) bool or None -> (B, L, D).
    """

    def __init__(self, d_model: int, max_length: int, *, heads: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.d_model = check_at_least("d_model", d_model, 1)
        self.max_length = check_at_least("max_length", max_length, 1)
        if heads is None:
            heads = max(1, d_model // 64)
            while d_model % heads:
                heads -= 1
        elif d_model % check_at_least("heads", heads, 1):
            raise ValueError(f"heads={heads} must divide d_model={d_model}")
        self.heads = heads
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend among the real tokens of x; the output at masked positions has no meaning."""
        check_sequence("x", x, self.d_model, self.max_length)
        check_mask("mask", mask, x)
        check_dtype("x", x, self.in_proj.weight.dtype)
        keys = None
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
            # A row without a single real token attends to its zeros: finite, and nobody reads it.
            keys = (mask | ~mask.any(dim=1, keepdim=True))[:, None, None, :]
        q, k, v = self.in_proj(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout.p if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keys, dropout_p=dropout)
        y = y.transpose(1, 2).flatten(-2)
        return self.dropout(self.out_proj(y))
