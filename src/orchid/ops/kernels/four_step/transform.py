"""The DFT of rows in registers: two matrix products with a twiddle between them.

A row of n = N1 N2 values is a tile x[t1, t2], t = N2 t1 + t2; its bins are X[k1, k2], k = k1 + N1 k2:

    X[k1, k2] = sum_t2 w_N2^(t2 k2) w_n^(t2 k1) sum_t1 w_N1^(t1 k1) x[t1, t2],      w_m = exp(-2 pi i / m).

Columns k2 < N2 / 2 are bins 0 ... n / 2 - 1 of a real row, each once; the Nyquist bin, the sum of (-1)^t x[t], is a
number beside them. Neighbours in frequency are neighbours along k1, from the last row to the first of the next column.
The result of a product is an operand of the next one without leaving its registers; what goes through shared memory is
a row in time, in float16, and what the frequency Conv1d takes from its neighbours. The inverse runs backwards.

S rows stand side by side in a tile, (N1, S N2) in time, (N1, S N2 / 2) in frequency: the matrix of the second stage is
block-diagonal then.
"""

# mypy: ignore-errors

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

from orchid.ops.kernels.launch import interpreter_on

# Rows of a tile from which four warps and more take its products.
WIDE = tl.constexpr(64)
INTERPRETED = tl.constexpr(interpreter_on())


@triton.constexpr_function
def stacked(N1):
    """Return whether a stage is one product: where a warp group takes it, which only Hopper's GPUs have.

    There a thread holds the halves of its results. Elsewhere they would be exchanged through shared memory.
    """
    hopper = cuda_capability_geq(9) and not cuda_capability_geq(10)
    return N1 >= WIDE and (INTERPRETED or hopper)


@triton.jit
def matrix(table, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Load a matrix (ROWS, COLUMNS)."""
    return tl.load(table + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])


@triton.jit
def load_stages(tables, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Load the matrices of both stages, float16: cosines C and negative sines S (N1, N1), then (S N2, S N2 / 2).

    From WIDE rows on the latter are side by side, (C, S) and (-S, C), so that real and imaginary parts are. Where
    stages are ``stacked``, C stands above S, (2 N1, N1), and (C, S) above (-S, C), (2 S N2, S N2).
    """
    further = tables + 2 * N1 * N1
    if stacked(N1):
        return matrix(tables, 2 * N1, N1), matrix(further, 2 * S * N2, S * N2)
    else:
        WIDTH: tl.constexpr = S * N2 if N1 >= WIDE else S * N2 // 2
        return (
            matrix(tables, N1, N1), matrix(tables + N1 * N1, N1, N1),
            matrix(further, S * N2, WIDTH), matrix(further + S * N2 * WIDTH, S * N2, WIDTH),
        )  # fmt: skip


@triton.jit
def halves(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Split a tile (ROWS, 2 COLUMNS) into its left and its right half, which a thread holds both."""
    return tl.split(tl.permute(tl.reshape(x, (ROWS, 2, COLUMNS)), (0, 2, 1)))


@triton.jit
def beside(left, right, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Put two tiles (ROWS, COLUMNS) side by side."""
    return tl.reshape(tl.permute(tl.join(left, right), (0, 2, 1)), (ROWS, 2 * COLUMNS))


@triton.jit
def storeys(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Split a tile (2 ROWS, COLUMNS) into its upper and its lower half, which a thread holds both."""
    return tl.split(tl.permute(tl.reshape(x, (2, ROWS, COLUMNS)), (1, 2, 0)))


@triton.jit
def above(upper, lower, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Put two tiles (ROWS, COLUMNS) one above the other."""
    return tl.reshape(tl.permute(tl.join(upper, lower), (2, 0, 1)), (2 * ROWS, COLUMNS))


@triton.jit
def in_order(table, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ACROSS: tl.constexpr = 1):
    """Load a tile (ROWS, COLUMNS) stored in the order in which threads hold a product's result.

    ``tables.fragments`` is that order, for warps along the rows or ACROSS the columns. Every thread loads what it will
    hold; from another order the tile would go through shared memory.
    """
    DOWN: tl.constexpr = ROWS // 16 if ACROSS == 1 else 1
    THREADS: tl.constexpr = 32 * DOWN * ACROSS
    COUNT: tl.constexpr = ROWS * COLUMNS // (4 * THREADS)
    vector = tl.arange(0, THREADS)[:, None] + tl.arange(0, COUNT)[None, :] * THREADS
    x = tl.load(table + vector[:, :, None] * 4 + tl.arange(0, 4)[None, None, :])
    if ACROSS == 1:
        x = tl.reshape(x, (DOWN, 8, 4, COUNT, 2, 2))
        return tl.reshape(tl.permute(x, (0, 4, 1, 3, 2, 5)), (ROWS, COLUMNS))
    else:
        x = tl.reshape(x, (ACROSS, 8, 4, ROWS // 16, COLUMNS // (8 * ACROSS), 2, 2))
        return tl.reshape(tl.permute(x, (3, 5, 1, 4, 0, 2, 6)), (ROWS, COLUMNS))


@triton.jit
def put_in_order(table, x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Store a tile (ROWS, COLUMNS) in that order."""
    x = tl.permute(tl.reshape(x, (ROWS // 16, 2, 8, COLUMNS // 8, 4, 2)), (0, 2, 4, 3, 1, 5))
    vector = tl.arange(0, 2 * ROWS)[:, None] + tl.arange(0, COLUMNS // 8)[None, :] * (2 * ROWS)
    at = vector[:, :, None] * 4 + tl.arange(0, 4)[None, None, :]
    tl.store(table + at, tl.reshape(x, (2 * ROWS, COLUMNS // 8, 4)))


@triton.jit
def again(table, number, USE: tl.constexpr):
    """Return the table's address in a way that the compiler does not see through.

    It would load a table once and keep it in registers, of which there are too few. ``number`` is below 2^24.
    """
    return table + tl.multiple_of(number >> (31 - USE), 16)


@triton.jit
def spectrum(x, stages, twiddles, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return the bins (N1, S N2 / 2) of rows (N1, S N2) float16: real and imaginary parts."""
    c, s = in_order(twiddles, N1, S * N2), in_order(twiddles + S * N1 * N2, N1, S * N2)
    if stacked(N1):
        re, im = storeys(tl.dot(stages[0], x), N1, S * N2)
    else:
        re, im = tl.dot(stages[0], x), tl.dot(stages[1], x)
    y_re, y_im = (re * c - im * s).to(tl.float16), (re * s + im * c).to(tl.float16)
    if stacked(N1):
        return halves(tl.dot(beside(y_re, y_im, N1, S * N2), stages[1]), N1, S * N2 // 2)
    elif N1 >= WIDE:
        return halves(tl.dot(y_im, stages[3], tl.dot(y_re, stages[2])), N1, S * N2 // 2)
    else:
        x_re, x_im = tl.dot(y_re, stages[2]), tl.dot(y_re, stages[3])
        return tl.dot(-y_im, stages[3], x_re), tl.dot(y_im, stages[2], x_im)


@triton.jit
def series(re, im, stages, twiddles, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return the sums of Re(X[k] w_n^(-t k)) over bins (N1, S N2 / 2) float16, (N1, S N2)."""
    c, s = in_order(twiddles, N1, S * N2), in_order(twiddles + S * N1 * N2, N1, S * N2)
    if stacked(N1):
        z_re, z_im = halves(tl.dot(beside(re, im, N1, S * N2 // 2), tl.trans(stages[1])), N1, S * N2)
    elif N1 >= WIDE:
        both = beside(re, im, N1, S * N2 // 2)
        z_re, z_im = tl.dot(both, tl.trans(stages[2])), tl.dot(both, tl.trans(stages[3]))
    else:
        z_re, z_im = tl.dot(re, tl.trans(stages[2])), tl.dot(im, tl.trans(stages[2]))
        z_re, z_im = tl.dot(im, tl.trans(stages[3]), z_re), tl.dot(-re, tl.trans(stages[3]), z_im)
    y_re, y_im = (z_re * c + z_im * s).to(tl.float16), (z_im * c - z_re * s).to(tl.float16)
    if stacked(N1):
        return tl.dot(tl.trans(stages[0]), above(y_re, y_im, N1, S * N2))
    else:
        return tl.dot(stages[1], y_im, tl.dot(stages[0], y_re))


@triton.jit
def side_by_side(x, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Turn rows (S, n) into a tile (N1, S N2)."""
    if S == 1:
        return tl.reshape(x, (N1, N2))
    else:
        return tl.reshape(tl.permute(tl.reshape(x, (S, N1, N2)), (1, 0, 2)), (N1, S * N2))


@triton.jit
def as_rows(x, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Turn a tile (N1, S N2) into rows (S, n)."""
    if S == 1:
        return tl.reshape(x, (1, N1 * N2))
    else:
        return tl.reshape(tl.permute(tl.reshape(x, (N1, S, N2)), (1, 0, 2)), (S, N1 * N2))


@triton.jit
def over_columns(x, N2: tl.constexpr, S: tl.constexpr):
    """Turn a number for each row, (S,), into one for each column of a spectrum, (1, S N2 / 2)."""
    row = tl.arange(0, S * N2 // 2)[None, :] // (N2 // 2)
    out = tl.zeros((1, S * N2 // 2), tl.float32)
    for i in tl.static_range(S):  # by way of scalars: a vector's broadcast would go through shared memory
        out = tl.where(row == i, tl.sum(tl.where(tl.arange(0, S) == i, x, 0.0)), out)
    return out


@triton.jit
def over_rows(x, N2: tl.constexpr, S: tl.constexpr):
    """Sum a spectrum's tile over each row's bins, (S,)."""
    row = tl.arange(0, S * N2 // 2)[None, :] // (N2 // 2)
    out = tl.zeros((S,), tl.float32)
    for i in tl.static_range(S):
        out = tl.where(tl.arange(0, S) == i, tl.sum(tl.where(row == i, x, 0.0)), out)
    return out


@triton.jit
def largest(re, im, N2: tl.constexpr, S: tl.constexpr):
    """Return a bound on the size of each row's bins, (S,): the largest |re| + |im|."""
    row = tl.arange(0, S * N2 // 2)[None, :] // (N2 // 2)
    sizes, out = tl.abs(re) + tl.abs(im), tl.zeros((S,), tl.float32)
    for i in tl.static_range(S):
        out = tl.where(tl.arange(0, S) == i, tl.max(tl.where(row == i, sizes, 0.0)), out)
    return out


@triton.jit
def bins(N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return k of every place of a spectrum, (N1, S N2 / 2)."""
    return tl.arange(0, N1)[:, None] + N1 * (tl.arange(0, S * N2 // 2)[None, :] % (N2 // 2))


@triton.jit
def _same(x, y):
    """Return 1 where whole numbers are the same, 0 elsewhere, float16.

    Without a comparison: from the bits of a truth value the compiler would conclude in which order threads hold an
    operand, and be wrong for sixteen rows (see ``Operands.pad_words``).
    """
    return tl.maximum(1.0 - tl.abs((x - y).to(tl.float32)), 0.0).to(tl.float16)


@triton.jit
def _by_products(x, BY: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return bins k + BY of x at the places of bins k, zero where there are none, by matrices of zeros and ones."""
    OVER: tl.constexpr = 1 if BY > 0 else -1
    to, place = tl.arange(0, N1)[:, None] + BY, tl.arange(0, N1)[None, :]
    column, source = tl.arange(0, S * N2 // 2)[None, :], tl.arange(0, S * N2 // 2)[:, None]
    own = _same(source // (N2 // 2), column // (N2 // 2))
    x = x.to(tl.float16)
    beside = tl.dot(x, _same(source, column + OVER) * own).to(tl.float16)
    return tl.dot(_same(place, to), x, tl.dot(_same(place, to - OVER * N1), beside))


@triton.jit
def moved(x, edge, BY: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return bins k + BY of x at the places of bins k; ``edge`` (S,) is the Nyquist bin, nothing is beyond it.

    In one warp by products with zeros and ones, in float16: a gather there is 64 shuffles. Otherwise it goes through
    shared memory.
    """
    H: tl.constexpr = N1 * N2 // 2
    COLUMNS: tl.constexpr = S * N2 // 2
    k = bins(N1, N2, S) + BY
    if N1 == 16:
        return tl.where(k == H, over_columns(edge, N2, S), _by_products(x, BY, N1, N2, S))
    else:
        inside = (k >= 0) & (k < H)
        column = tl.arange(0, COLUMNS)[None, :]
        place = tl.where(inside, (k % N1) * COLUMNS + k // N1 + column - column % (N2 // 2), 0)
        flat = tl.gather(tl.reshape(x, (N1 * COLUMNS,)), tl.reshape(place, (N1 * COLUMNS,)), 0)
        return tl.where(inside, tl.reshape(flat, (N1, COLUMNS)), tl.where(k == H, over_columns(edge, N2, S), 0.0))
