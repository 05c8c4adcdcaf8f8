"""Launches that add up what programs have summed, each in place of a sum and the casts and copies that follow it."""

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, power_of_two
from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.total_kernels import added_up_kernel, layer_totals_kernel

# Parts of a layer's sums added at a time.
PARTS = 16
# Numbers that a program loads at once, and columns of them; programs wanted where there are many parts, and how many
# loads each of them is worth.
NUMBERS, BLOCK, PROGRAMS, LEAST = 4096, 64, 1024, 4


def added_up(x: Tensor, out: Tensor) -> Tensor:
    """Write the sum of x (parts, ...) over its parts into out, and return that; x is contiguous.

    Many parts are shared out among programs first: their sums, float32, are added up after them.
    """
    parts, size = x.shape[0], out.numel()
    if not parts:
        return out.zero_()
    at_once = min(NUMBERS // BLOCK, power_of_two(parts))
    loads, columns = cdiv(parts, at_once), cdiv(size, BLOCK)
    shares = 1 if loads <= 2 * LEAST else min(loads // LEAST, cdiv(PROGRAMS, columns))
    steps = cdiv(loads, shares)
    shares = cdiv(loads, steps)
    target = out if shares == 1 else x.new_empty((shares, size), dtype=torch.float32)
    added_up_kernel[(columns, shares)](x, target, parts, size, steps, PARTS=at_once, BLOCK=BLOCK)
    return out if shares == 1 else added_up(target, out)


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
            PARTS=PARTS, COLUMNS=power_of_two(3 * (given.taps + 1) + 3 + given.sides * given.taps),
            num_warps=1,
        )  # fmt: skip

    def all(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return the five gradients."""
        offset, weight, bias, spatial, spectral = self._grads
        return offset, weight, bias, spatial, spectral
