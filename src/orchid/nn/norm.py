"""Normalisation over channels, with kernels on a GPU."""

import torch
from torch import Tensor, nn

from orchid.ops.checks import check_choice
from orchid.ops.kernels.launch import OPTIONAL, TRITON
from orchid.ops.kernels.surroundings import distributed, transformed
from orchid.ops.precision import autocast_on, working_dtype


class LayerNorm(nn.LayerNorm):
    """y = weight (x - mean) / sqrt(variance + eps) + bias, mean and variance over a token's channels.

    The library's, but for two things on a CUDA device in eager mode: its gradients are one pass over the tokens, and
    under autocast y has autocast's type at once, where the library's is float32 until a projection casts it.
    Compilers fuse the library's with what surrounds it, and get that.

    Args:
        d_model: D.
        backend: "auto" takes kernels on a CUDA device, "torch" never does.
        rounded: whether y has autocast's type, for the projection that reads it; without, float32 like the library's.

    Shape:
        (..., D) -> (..., D).
    """

    def __init__(self, d_model: int, *, backend: str = "auto", rounded: bool = True) -> None:
        super().__init__(d_model)
        self.backend, self.rounded = check_choice("backend", backend, OPTIONAL), rounded

    def forward(self, input: Tensor) -> Tensor:
        """Normalise every token."""
        return self._by_kernels(input) if self._fused(input) else super().forward(input)

    def _fused(self, x: Tensor) -> bool:
        """Return whether the kernels take this input."""
        if self.backend == "torch" or not x.is_cuda or not TRITON or torch.compiler.is_compiling():
            return False
        if transformed() or distributed(x) or distributed(self.weight):
            return False
        from orchid.ops.kernels.norm.operator import WIDEST

        return x.dtype != torch.float64 and x.shape[-1] == self.normalized_shape[0] <= WIDEST

    def _by_kernels(self, x: Tensor) -> Tensor:
        from orchid.ops.kernels.norm.operator import normalised

        rounded = working_dtype(x) if self.rounded else torch.float32 if autocast_on(x) else x.dtype
        return normalised(x, self.weight, self.bias, self.eps, rounded)
