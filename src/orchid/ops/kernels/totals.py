"""Launches that add up what programs have summed, each in place of a sum and the casts and copies that follow it."""

import torch
import triton
from torch import Tensor

from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.total_kernels import added_up_kernel, layer_totals_kernel

# Parts added at a time, and columns a program takes of them.
PARTS, BLOCK = 16, 256


def added_up(x: Tensor, out: Tensor) -> Tensor:
    """Write the sum of x (parts, ...), float32, over its parts into out, and return that."""
    size = out.numel()
    added_up_kernel[(triton.cdiv(size, BLOCK),)](x, out, x.shape[0], size, PARTS=PARTS, BLOCK=BLOCK)
    return out


class LayerTotals:
    """The gradients of offset, weight, bias, spatial and spectral, written by chunks of channels."""

    def __init__(self, given: Operands) -> None:
        self._given = given
        parameters = (given.offset, given.weight, given.bias, given.spatial)
        self._grads = [torch.empty_like(t) for t in parameters]
        self._grads.append((torch.empty_like if given.sides else torch.zeros_like)(given.spectral))

    def add(self, first: int, last: int, sums: Tensor, u_sums: Tensor | None, spectral: Tensor) -> None:
        """Write those of channels first ... last - 1.

        Args:
            first: the first of them.
            last: the one behind them.
            sums: (channels / ways, parts, ways, count), of the streams' gradients.
            u_sums: likewise of the context's.
            spectral: (parts, channels, K), contiguous along K.
        """
        given = self._given
        u_parts = 0 if u_sums is None else u_sums.shape[1]
        layer_totals_kernel[(last - first,)](
            sums, sums if u_sums is None else u_sums, spectral, *self._grads,
            first, given.channels, sums.shape[1], u_parts, spectral.shape[0], *spectral.stride()[:2],
            WAYS=sums.shape[2], SIDES=given.sides, CONTEXT=u_sums is not None, K=given.taps,
            PARTS=PARTS, COLUMNS=triton.next_power_of_2(3 * (given.taps + 1) + 3 + given.sides * given.taps),
            num_warps=1,
        )  # fmt: skip

    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the five gradients."""
        offset, weight, bias, spatial, spectral = self._grads
        return offset, weight, bias, spatial, spectral
