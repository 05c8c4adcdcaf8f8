"""The MLP of a block: channel mixing by dense or block-diagonal matrices."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.nn.block_diagonal import BlockDiagonalLinear
from orchid.ops.checks import check_at_least, check_choice, check_fraction
from orchid.ops.kernels.launch import OPTIONAL, TRITON
from orchid.ops.kernels.surroundings import distributed, hooked, transformed
from orchid.ops.precision import working_dtype

MLPS = ("plain", "gated")


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
        self.backend = check_choice("backend", backend, OPTIONAL)
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
            and (torch.compiler.is_compiling() or not (transformed() or self._distributed(x)))
        )

    def _by_blocks(self, x: Tensor) -> Tensor:
        """Compute the same in kernels: small blocks at once, others with the hidden layer stored block by block."""
        from orchid.ops.kernels.mlp.blocks import block_hidden, from_blocks
        from orchid.ops.kernels.mlp.whole import serves, whole_mlp

        dtype = working_dtype(x)
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

    def _distributed(self, x: Tensor) -> bool:
        return distributed(x) or any(distributed(parameter) for parameter in self.parameters())

    def _layers(self) -> list[nn.Module]:
        return [layer for layer in (self.up, self.gate, self.down) if layer is not None]


def _linear(in_features: int, out_features: int, blocks: int) -> nn.Module:
    # A dense layer stays an nn.Linear, which the ecosystem's tools (adapters, quantisers) know.
    if blocks == 1:
        return nn.Linear(in_features, out_features)
    return BlockDiagonalLinear(in_features, out_features, blocks)
