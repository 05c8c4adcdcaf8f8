"""Block-diagonal linear maps: channel mixing at a fraction of the parameters."""

import math

import torch
from torch import Tensor, nn

from orchid.ops.checks import check_at_least


class BlockDiagonalLinear(nn.Module):
    """y = x W^T + b with W = diag(W_1, ..., W_blocks): Monarch matrices of order 1 (section 4.2).

    Args:
        in_features: size of the last axis of x, divisible by ``blocks``.
        out_features: size of the last axis of y, divisible by ``blocks``.
        blocks: number of blocks on the diagonal; 1 is a dense layer.
        bias: add a learned constant.

    Shape:
        (..., in_features) -> (..., out_features); weight (blocks, out_features / blocks, in_features / blocks).

    Example:
        >>> BlockDiagonalLinear(8, 16, blocks=4)(torch.zeros(2, 3, 8)).shape
        torch.Size([2, 3, 16])
    """

    def __init__(self, in_features: int, out_features: int, blocks: int = 4, bias: bool = True) -> None:
        super().__init__()
        check_at_least("blocks", blocks, 1)
        for name, size in (("in_features", in_features), ("out_features", out_features)):
            if check_at_least(name, size, 1) % blocks:
                raise ValueError(f"{name}={size} must be divisible by blocks={blocks}")
        self.in_features, self.out_features, self.blocks = in_features, out_features, blocks
        self.weight = nn.Parameter(torch.empty(blocks, out_features // blocks, in_features // blocks))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw uniform in +-1 / sqrt(fan in), where the fan in is that of one block."""
        bound = 1 / math.sqrt(self.weight.shape[2])
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        if x.shape[-1] != self.in_features:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (..., in_features={self.in_features})")
        rows = x.reshape(-1, self.blocks, self.in_features // self.blocks).transpose(0, 1)
        y = torch.bmm(rows, self.weight.transpose(1, 2)).transpose(0, 1)
        y = y.reshape(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias.to(y.dtype)

    def extra_repr(self) -> str:
        """Show sizes in ``print(module)``."""
        bias = self.bias is not None
        return f"{self.in_features}, {self.out_features}, blocks={self.blocks}, bias={bias}"
