"""Gradients of small blocks of weights: products that sum over many tokens and have few results.

The library gives a multiprocessor a tile of the results, and there are four of them in the MLP of a small model: the
others wait while these go through all tokens. Here tokens are shared out, and the shares added up.
"""

# mypy: ignore-errors

import torch
import triton
import triton.language as tl
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, launched
from orchid.ops.kernels.totals import added_up

# Results of a tile along either axis, and tokens taken at a time.
TILE, TOKENS = 64, 64
# With more of its own tiles of results than this the library keeps a GPU busy.
LIBRARY_TILE, FEW = 128, 32
# Programs wanted in a launch, and groups of tokens that are worth a program.
PROGRAMS, LEAST = 512, 4


@launched
@triton.jit(do_not_specialize=["size", "steps"])
def token_products_kernel(
    x, y, shares, size, rows, columns, x_block, x_token, y_block, y_token, steps,
    TILE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Write a part's sum over tokens of x[block, t, i] y[block, t, j], (parts, blocks, rows, columns)."""
    across = tl.cdiv(columns, TILE)
    part, down, block = tl.program_id(0), tl.program_id(1) // across, tl.program_id(2).to(tl.int64)
    i, j = down * TILE + tl.arange(0, TILE), (tl.program_id(1) - down * across) * TILE + tl.arange(0, TILE)
    x, y = x + block * x_block, y + block * y_block
    total = tl.zeros((TILE, TILE), tl.float32)
    for step in range(steps):
        t = ((part * steps + step) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)[:, None]
        left = tl.load(x + t * x_token + i[None, :], mask=(t < size) & (i < rows)[None, :], other=0.0)
        right = tl.load(y + t * y_token + j[None, :], mask=(t < size) & (j < columns)[None, :], other=0.0)
        total = tl.dot(tl.trans(left), right, total)
    out = shares + (part * tl.num_programs(2) + block) * rows * columns
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    tl.store(out + i[:, None] * columns + j[None, :], total, mask=inside)


def token_products(x: Tensor, y: Tensor) -> Tensor:
    """Return x^T y of blocks, (blocks, I, J); x is (blocks, T, I) and y (blocks, T, J), of one type."""
    (blocks, size, rows), columns = x.shape, y.shape[2]
    parts, steps = _shared_out(size, blocks, rows, columns)
    if x.dtype == torch.float32 or parts == 1 or x.stride(2) != 1 or y.stride(2) != 1:
        return torch.bmm(x.transpose(1, 2), y)
    shares = x.new_empty((parts, blocks, rows, columns), dtype=torch.float32)
    tiles = cdiv(rows, TILE) * cdiv(columns, TILE)
    token_products_kernel[(parts, tiles, blocks)](
        x, y, shares, size, rows, columns, *x.stride()[:2], *y.stride()[:2], steps, TILE=TILE, TOKENS=TOKENS
    )
    return added_up(shares, x.new_empty((blocks, rows, columns)))


def _shared_out(size: int, blocks: int, rows: int, columns: int) -> tuple[int, int]:
    """Return into how many parts the tokens fall, and how many groups of them each has."""
    groups = cdiv(size, TOKENS)
    if blocks * cdiv(rows, LIBRARY_TILE) * cdiv(columns, LIBRARY_TILE) > FEW:
        return 1, groups
    tiles = blocks * cdiv(rows, TILE) * cdiv(columns, TILE)
    steps = max(LEAST, cdiv(groups * tiles, PROGRAMS))
    return cdiv(groups, steps), steps
