"""A block-diagonal MLP of small blocks in one kernel each way: its hidden layer stays in registers.

A program takes one block and goes through tiles of tokens; the block's matrices stay in shared memory, and in the
backward pass the sums of their gradients in registers.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.mlp.normal import normal


@triton.jit
def _matrix(matrix, row, column, rows, columns):
    """Load rows and columns of a matrix (rows, columns), zeros beyond."""
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    return tl.load(matrix + row[:, None] * columns + column[None, :], mask=inside, other=0.0)


@triton.jit
def _tokens(x, t, channel, size, width, across):
    """Load the channels of a block of tokens (T, across), zeros beyond."""
    at = x + t.to(tl.int64)[:, None] * across + tl.program_id(1) * width + channel[None, :]
    return tl.load(at, mask=(t < size)[:, None] & (channel < width)[None, :], other=0.0)


@triton.jit
def _put_tokens(y, values, t, channel, size, width, across):
    """Store them."""
    at = y + t.to(tl.int64)[:, None] * across + tl.program_id(1) * width + channel[None, :]
    tl.store(at, values.to(y.dtype.element_ty), mask=(t < size)[:, None] & (channel < width)[None, :])


@launched
@triton.jit(do_not_specialize=["size", "steps"])
def whole_mlp_kernel(
    x, up, up_bias, down, bias, y, size, width, hidden, steps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write y = gelu(x U^T + b) W^T + c; x and y (T, blocks * width), U (blocks, hidden, width), W its other way."""
    part, block, across = tl.program_id(0), tl.program_id(1), tl.num_programs(1) * width
    channel = tl.arange(0, WIDTH)
    up, down = up + block * hidden * width, down + block * hidden * width
    ups, downs, biases = (), (), ()
    for c in tl.static_range(HIDDEN // CHUNK):
        unit = c * CHUNK + tl.arange(0, CHUNK)
        ups = ups + (_matrix(up, unit, channel, hidden, width),)
        downs = downs + (_matrix(down, channel, unit, width, hidden),)
        own = tl.load(up_bias + block * hidden + unit, mask=unit < hidden, other=0.0)
        biases = biases + (own.to(tl.float32),)
    constant = tl.load(bias + block * width + channel, mask=channel < width, other=0.0).to(tl.float32)
    for step in range(steps):
        t = (part * steps + step) * ROWS + tl.arange(0, ROWS)
        tile = _tokens(x, t, channel, size, width, across)
        out = tl.zeros((ROWS, WIDTH), tl.float32)
        for c in tl.static_range(HIDDEN // CHUNK):
            u = tl.dot(tile, tl.trans(ups[c])) + biases[c][None, :]
            below, _ = normal(u, False)
            out = tl.dot((u * below).to(tile.dtype), tl.trans(downs[c]), out)
        _put_tokens(y, out + constant[None, :], t, channel, size, width, across)


@launched
@triton.jit(do_not_specialize=["size", "steps"])
def whole_mlp_grad_kernel(
    dy, x, up, up_bias, down, dx, matrices, sums, size, width, hidden, steps,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Write dx, and what a program's tokens give to the gradients of U and W, of b and c.

    matrices (parts, 2, blocks * hidden * width) and sums (parts, blocks * (hidden + width)), float32. The hidden layer
    is computed again, lying: (CHUNK, ROWS), so that it is an operand of its matrices' gradients as it is.
    """
    part, block, blocks = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    across, channel = blocks * width, tl.arange(0, WIDTH)
    up, down = up + block * hidden * width, down + block * hidden * width
    ups, downs, biases, dups, ddowns, dbiases = (), (), (), (), (), ()
    for c in tl.static_range(HIDDEN // CHUNK):
        unit = c * CHUNK + tl.arange(0, CHUNK)
        ups = ups + (_matrix(up, unit, channel, hidden, width),)
        downs = downs + (_matrix(down, channel, unit, width, hidden),)
        own = tl.load(up_bias + block * hidden + unit, mask=unit < hidden, other=0.0)
        biases = biases + (own.to(tl.float32),)
        dups = dups + (tl.zeros((CHUNK, WIDTH), tl.float32),)
        ddowns = ddowns + (tl.zeros((CHUNK, WIDTH), tl.float32),)
        dbiases = dbiases + (tl.zeros((CHUNK,), tl.float32),)
    dconstant = tl.zeros((WIDTH,), tl.float32)
    for step in range(steps):
        t = (part * steps + step) * ROWS + tl.arange(0, ROWS)
        tile = _tokens(x, t, channel, size, width, across)
        grad = _tokens(dy, t, channel, size, width, across)
        dtile = tl.zeros((ROWS, WIDTH), tl.float32)
        more_ups, more_downs, more_biases = (), (), ()
        for c in tl.static_range(HIDDEN // CHUNK):
            u = tl.dot(ups[c], tl.trans(tile)) + biases[c][:, None]
            below, density = normal(u, False)
            du = tl.dot(tl.trans(downs[c]), tl.trans(grad)) * (below + u * density)
            more_downs = more_downs + (tl.dot((u * below).to(tile.dtype), grad, ddowns[c]),)
            more_biases = more_biases + (dbiases[c] + tl.sum(du, axis=1),)
            du = du.to(tile.dtype)
            more_ups = more_ups + (tl.dot(du, tile, dups[c]),)
            dtile = tl.dot(tl.trans(du), ups[c], dtile)
        dups, ddowns, dbiases = more_ups, more_downs, more_biases
        dconstant += tl.sum(grad.to(tl.float32), axis=0)
        _put_tokens(dx, dtile, t, channel, size, width, across)
    of_up = matrices + (part * 2 * blocks + block).to(tl.int64) * hidden * width
    of_down = of_up + blocks * hidden * width
    sums += part * blocks * (hidden + width)
    for c in tl.static_range(HIDDEN // CHUNK):
        unit = c * CHUNK + tl.arange(0, CHUNK)
        inside = (unit < hidden)[:, None] & (channel < width)[None, :]
        tl.store(of_up + unit[:, None] * width + channel[None, :], dups[c], mask=inside)
        tl.store(of_down + channel[None, :] * hidden + unit[:, None], ddowns[c], mask=inside)
        tl.store(sums + block * hidden + unit, dbiases[c], mask=unit < hidden)
    tl.store(sums + blocks * hidden + block * width + channel, dconstant, mask=channel < width)
