"""gelu(u + bias), or that times (g + gate bias), of a hidden layer stored block by block: one pass each way."""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.mlp.normal import normal


@triton.jit
def _tile(size, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr, row):
    """Return offsets, columns and what is inside of the tile that starts at a row of a block (size, width)."""
    t = row + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    block = tl.program_id(2).to(tl.int64)
    inside = (t < size) & (column < width)
    return block * size * width + t.to(tl.int64) * width + column, block * width + column, inside


@triton.jit
def _values(x, bias, at, column, inside, width):
    own = tl.load(bias + column, mask=column < (tl.program_id(2) + 1) * width, other=0.0).to(tl.float32)
    return tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + own


@launched
@triton.jit
def activation_kernel(
    u, u_bias, g, g_bias, out, size, width, GATED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write gelu(u + u_bias), times g + g_bias where GATED; all (blocks, size, width), biases (blocks, width)."""
    at, column, inside = _tile(size, width, ROWS, COLUMNS, tl.program_id(0) * ROWS)
    x = _values(u, u_bias, at, column, inside, width)
    below, _ = normal(x, u.dtype.element_ty == tl.float32)
    y = x * below
    if GATED:
        y = y * _values(g, g_bias, at, column, inside, width)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=inside)


@launched
@triton.jit
def activation_grad_kernel(
    dy, u, u_bias, g, g_bias, du, dg, u_sums, g_sums, size, width, steps,
    GATED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write du and dg, and their sums over the rows a program goes through, (parts, blocks, width)."""
    u_sum, g_sum = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    part = tl.program_id(0)
    for step in range(steps):
        at, column, inside = _tile(size, width, ROWS, COLUMNS, (part * steps + step) * ROWS)
        x = _values(u, u_bias, at, column, inside, width)
        grad = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        below, density = normal(x, u.dtype.element_ty == tl.float32)
        slope = below + x * density
        if GATED:
            g_grad = grad * (x * below)
            grad = grad * _values(g, g_bias, at, column, inside, width)
            tl.store(dg + at, g_grad.to(dg.dtype.element_ty), mask=inside)
            g_sum += tl.where(inside, g_grad, 0.0)
        u_grad = grad * slope
        tl.store(du + at, u_grad.to(du.dtype.element_ty), mask=inside)
        u_sum += tl.where(inside, u_grad, 0.0)
    own = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    target = (part * tl.num_programs(2) + tl.program_id(2)) * width + own
    tl.store(u_sums + target, tl.sum(u_sum, axis=0), mask=own < width)
    if GATED:
        tl.store(g_sums + target, tl.sum(g_sum, axis=0), mask=own < width)
