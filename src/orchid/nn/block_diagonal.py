"""Block-diagonal linear maps, and the MLPs built from them: channel mixing at a fraction of the parameters."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.ops.checks import check_at_least, check_choice, check_fraction
from orchid.ops.kernels.launch import TRITON, hooked, transformed

MLPS = ("plain", "gated")
BACKENDS = ("auto", "torch")


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


class MLP(nn.Module):
    """Channel mixing, "plain" W2 gelu(W1 x) or "gated" W2 (gelu(W1 x) * W3 x), dense or block diagonal.

    Args:
        d_model: D.
        kind: "plain" or "gated".
        blocks: blocks on the diagonal of every matrix; 1 is dense.
        expansion: hidden size over d_model.
        dropout: on the hidden layer.
        backend: "auto" takes kernels for block-diagonal matrices on a CUDA device, "torch" never does.
    """

    def __init__(
        self,
        d_model: int,
        *,
        kind: str = "plain",
        blocks: int = 1,
        expansion: int = 4,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.backend = check_choice("backend", backend, BACKENDS)
        self.kind, self.d_model = check_choice("mlp", kind, MLPS), d_model
        hidden = check_at_least("expansion", expansion, 1) * d_model
        self.up = _linear(d_model, hidden, blocks)
        self.gate = _linear(d_model, hidden, blocks) if kind == "gated" else None
        self.down = _linear(hidden, d_model, blocks)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., D) to (..., D)."""
        if self._fused(x):
            return self._by_blocks(x)
        hidden = F.gelu(self.up(x))
        if self.gate is not None:
            hidden = hidden * self.gate(x)
        return self.down(self.dropout(hidden))

    def _fused(self, x: Tensor) -> bool:
        """Return whether the kernels take this input: block diagonal, on a GPU, nothing watching the layers inside."""
        return (
            self.backend == "auto"
            and x.is_cuda
            and x.dtype != torch.float64
            and x.shape[-1] == self.d_model
            and all(type(layer) is BlockDiagonalLinear and layer.bias is not None for layer in self._layers())
            and TRITON
            and not any(hooked(layer) for layer in self._layers())
            and (torch.compiler.is_compiling() or not transformed())
        )

    def _by_blocks(self, x: Tensor) -> Tensor:
        """Compute the same in kernels: small blocks at once, others with the hidden layer stored block by block."""
        from orchid.ops.kernels.mlp.blocks import block_hidden, from_blocks
        from orchid.ops.kernels.mlp.whole import serves, whole_mlp

        kind = x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        layers = [
            (layer.weight.to(dtype), layer.bias)
            for layer in self._layers()
            if isinstance(layer, BlockDiagonalLinear) and layer.bias is not None
        ]
        tokens = x.to(dtype).reshape(-1, self.d_model)
        if self.gate is None and self._dropout_is_idle() and serves(tokens, layers[0][0], layers[1][0]):
            return whole_mlp(tokens, *layers[0], *layers[1]).reshape(x.shape)
        gate = (None, None) if self.gate is None else layers[1]
        hidden = block_hidden(tokens, *layers[0], *gate)
        return from_blocks(self.dropout(hidden), *layers[-1]).reshape(x.shape)

    def _dropout_is_idle(self) -> bool:
        """Return whether nothing happens to the hidden layer: it is dropped by no share, replaced or watched."""
        dropout = self.dropout
        return type(dropout) is nn.Dropout and not (dropout.training and dropout.p > 0) and not hooked(dropout)

    def _layers(self) -> list[nn.Module]:
        return [layer for layer in (self.up, self.gate, self.down) if layer is not None]


def _linear(in_features: int, out_features: int, blocks: int) -> nn.Module:
    # A dense layer stays an nn.Linear, which the ecosystem's tools (adapters, quantisers) know.
    if blocks == 1:
        return nn.Linear(in_features, out_features)
    return BlockDiagonalLinear(in_features, out_features, blocks)


def linear_weights(model: nn.Module) -> list[Tensor]:
    """Return the matrices of a model's linear layers, maps of patches among them: what a weight decay is meant for."""
    kinds = (nn.Linear, nn.Conv2d, BlockDiagonalLinear)
    return [layer.weight for layer in model.modules() if isinstance(layer, kinds)]
