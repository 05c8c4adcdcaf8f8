"""The transpose of a matrix in tiles, which reads and writes whole lines where a strided copy does one of both."""

# mypy: ignore-errors

import triton
import triton.language as tl
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, launched, on_device_of
from orchid.ops.kernels.library import operator

TILE = 64


@launched
@triton.jit
def transpose_kernel(x, y, rows, columns, TILE: tl.constexpr):
    """Write y (columns, rows) of x (rows, columns)."""
    across = tl.cdiv(columns, TILE)
    down = tl.program_id(0) // across
    row, column = down * TILE + tl.arange(0, TILE), (tl.program_id(0) - down * across) * TILE + tl.arange(0, TILE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    values = tl.load(x + row.to(tl.int64)[:, None] * columns + column[None, :], mask=inside, other=0.0)
    target = y + column.to(tl.int64)[:, None] * rows + row[None, :]
    tl.store(target, tl.trans(values), mask=tl.trans(inside))


@operator("transposed")
def transposed(x: Tensor) -> Tensor:
    """Return the transpose of a contiguous matrix, contiguous."""
    rows, columns = x.shape
    y = x.new_empty(columns, rows)
    with on_device_of(x):
        transpose_kernel[(cdiv(rows, TILE) * cdiv(columns, TILE),)](x, y, rows, columns, TILE=TILE)
    return y


@transposed.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1], x.shape[0])


transposed.register_autograd(lambda ctx, dy: transposed(dy.contiguous()))
