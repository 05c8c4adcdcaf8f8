"""Tiles of short rows in frequency: transforms as products with tables, the kernel's spectrum, its frequency Conv1d.

With H = n / 2 and tables (n, H) in shared memory,

    X_re = x C,  C[t, k] = cos(2 pi t k / n);      X_im = x S,  S[t, k] = -sin(2 pi t k / n),  S[t, 0] = (-1)^t.

The sine of bin 0 would be zero: its place has the Nyquist bin, so n / 2 + 1 bins fit in two times n / 2 numbers. With
w = 1/2 for column 0 and 1 for the others, T^-1 X = 2 ((w X_re) C^T + (w X_im) S^T) / n. Columns come in blocks, so that
what stands between two products fits into registers. The frequency Conv1d is a product with a band matrix; what the
Nyquist bin gives and takes is added beside it. Kernels are divided by a bound on their spectra, taps by the sum of
their sizes.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.streams.tiles import TINY


@triton.jit
def columns(block, BLOCK: tl.constexpr):
    """Return the columns of a block, (1, BLOCK)."""
    return block * BLOCK + tl.arange(0, BLOCK)[None, :]


@triton.jit
def load_tables(tables, N: tl.constexpr, BLOCK: tl.constexpr):
    """Load the cosines of all blocks of columns, then the sines, (N, BLOCK) each."""
    H: tl.constexpr = N // 2
    loaded = ()
    for i in tl.static_range(N // BLOCK):
        start = tables + (i // (H // BLOCK)) * N * H + (i % (H // BLOCK)) * BLOCK
        loaded = loaded + (tl.load(start + tl.arange(0, N)[:, None] * H + tl.arange(0, BLOCK)[None, :]),)
    return loaded


@triton.jit
def bands_of(taps, total, H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr):
    """Return the matrix (H, H) of the frequency Conv1d, out[k] = sum M[at] band[at, k], its taps divided by ``total``.

    In blocks, row by row.
    """
    bands = ()
    for i in tl.static_range((H // BLOCK) * (H // BLOCK)):
        at, k = tl.trans(columns(i // (H // BLOCK), BLOCK)), columns(i % (H // BLOCK), BLOCK)
        band = tl.zeros((BLOCK, BLOCK), tl.float32)
        for j in tl.static_range(K):
            band = tl.where(at - k + K // 2 == j, tl.load(taps + j).to(tl.float32) / total, band)
        bands = bands + (band.to(tl.float16),)
    return bands


@triton.jit
def shifts_of(J: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr):
    """Return, in blocks likewise, the matrix that moves what tap J of the Conv1d meets to where it is wanted."""
    shifts = ()
    for i in tl.static_range((H // BLOCK) * (H // BLOCK)):
        at, k = tl.trans(columns(i // (H // BLOCK), BLOCK)), columns(i % (H // BLOCK), BLOCK)
        shifts = shifts + ((at - k + K // 2 == J).to(tl.float16),)
    return shifts


@triton.jit
def through(x, matrix, block, BLOCKS: tl.constexpr):
    """Return a block of columns of x (blocks of columns) times a matrix (blocks, row by row)."""
    out = tl.dot(x[0], matrix[block])
    for i in tl.static_range(1, BLOCKS):
        out = tl.dot(x[i], matrix[i * BLOCKS + block], out)
    return out


@triton.jit
def back_through(x, matrix, block, BLOCKS: tl.constexpr):
    """Return a block of columns of x times the transposed matrix."""
    out = tl.dot(x[0], tl.trans(matrix[block * BLOCKS]))
    for i in tl.static_range(1, BLOCKS):
        out = tl.dot(x[i], tl.trans(matrix[block * BLOCKS + i]), out)
    return out


@triton.jit
def _edge_tap(taps, total, o, TAKING: tl.constexpr, K: tl.constexpr):
    """Return the tap, divided by ``total``, by which column H - o takes from the Nyquist bin, or gives to it."""
    return tl.load(taps + (K // 2 + o if TAKING else K // 2 - o)).to(tl.float32) / total


@triton.jit
def sum_at_edge(x, taps, total, k, TAKING: tl.constexpr, H: tl.constexpr, K: tl.constexpr):
    """Return the sum, (ROWS,), of x (ROWS, BLOCK) at the columns that give to the Nyquist bin or take from it.

    Times their taps. Of most of a thread's columns the compiler knows that they are none of these.
    """
    out = tl.zeros((x.shape[0],), tl.float32)
    for o in tl.static_range(1, K // 2 + 1):
        out += _edge_tap(taps, total, o, TAKING, K) * tl.sum(tl.where(k == H - o, x, 0.0), axis=1)
    return out


@triton.jit
def plus_edge(x, edge, taps, total, k, TAKING: tl.constexpr, H: tl.constexpr, K: tl.constexpr):
    """Return x (ROWS, BLOCK) with the Nyquist bin's number (ROWS,) added at those columns, times their taps."""
    for o in tl.static_range(1, K // 2 + 1):
        x = tl.where(k == H - o, x + (_edge_tap(taps, total, o, TAKING, K) * edge)[:, None], x)
    return x


@triton.jit
def tap_total(taps, K: tl.constexpr):
    """Return the sum of the taps' sizes: a bound on what the Conv1d makes of numbers up to 1."""
    total = TINY + 0.0
    for j in tl.static_range(K):
        total += tl.abs(tl.load(taps + j).to(tl.float32))
    return total


@triton.jit
def static_bins(static, delta, d, own, k, n, KEPT: tl.constexpr):
    """Return h0_f of channel d as columns k: real parts, imaginary parts with zero at column 0, the Nyquist bin's.

    ``static`` has all channels, KEPT as h0_f (D, n / 2 + 1), or T h0 of two channels a row, ``own`` counted there.
    """
    if KEPT:
        row = static + d * (n + 2)
        re, im = tl.load(row + 2 * k), tl.load(row + 2 * k + 1)
        edge = tl.load(row + n)
    else:  # two channels a row: X[k] = (Z[k] + conj Z[n - k]) / 2, Y[k] = (Z[k] - conj Z[n - k]) / 2 i
        row = static + (own // 2) * 2 * n
        back = tl.where(k == 0, 0, n - k)
        z_re, z_im = tl.load(row + 2 * k), tl.load(row + 2 * k + 1)
        b_re, b_im = tl.load(row + 2 * back), tl.load(row + 2 * back + 1)
        odd = d % 2 == 1
        own = tl.load(delta + d).to(tl.float32)
        re = tl.where(odd, z_im + b_im, z_re + b_re) * 0.5 + own
        im = tl.where(odd, b_re - z_re, z_im - b_im) * 0.5
        edge = tl.load(row + n + tl.where(odd, 1, 0)) + own
    return re, tl.where(k == 0, 0.0, im), edge


@triton.jit
def load_statics(
    static, delta, d, own, N: tl.constexpr, BLOCK: tl.constexpr, KEPT: tl.constexpr
):  # fmt: skip
    """Return h0_f in blocks, real parts, then imaginary parts; then the Nyquist bin's, and a bound on all of them."""
    res, ims, most, edge = (), (), TINY + 0.0, 0.0
    for i in tl.static_range(N // 2 // BLOCK):
        re, im, edge = static_bins(static, delta, d, own, columns(i, BLOCK), N, KEPT)
        res, ims = res + (re,), ims + (im,)
        most = tl.maximum(most, tl.max(tl.max(tl.abs(re) + tl.abs(im), axis=1), axis=0))
    return res + ims + (edge, tl.maximum(most, tl.abs(edge)))


@triton.jit
def kernel_parts(
    g, most, statics, tables, taps, total, scale, H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """Return h_f of rows, g divided by ``most``: what its columns are made of, so that they can be had block by block.

    (|G| in blocks, float16), |G| of the Nyquist bin (ROWS,), a bound on h_f (ROWS,), h_f of the Nyquist bin over it.
    """
    BLOCKS: tl.constexpr = H // BLOCK
    sizes = ()
    largest, at_edge, edge = 0.0, 0.0, 0.0
    for i in tl.static_range(BLOCKS):
        re, im = tl.dot(g, tables[i]), tl.dot(g, tables[BLOCKS + i])
        if i == 0:
            first = columns(0, BLOCK) == 0
            edge = tl.sum(tl.where(first, tl.abs(im), 0.0), axis=1)
            im = tl.where(first, 0.0, im)
        magnitude = tl.sqrt(re * re + im * im)
        largest = tl.maximum(largest, tl.max(magnitude, axis=1))
        at_edge += sum_at_edge(magnitude, taps, total, columns(i, BLOCK), False, H, K)
        sizes = sizes + (magnitude.to(tl.float16),)
    factor = most * (total * scale)
    bound = statics[2 * BLOCKS + 1] + factor * tl.maximum(largest, edge)
    at_edge += tl.load(taps + K // 2).to(tl.float32) / total * edge
    return sizes, edge, bound, (statics[2 * BLOCKS] + factor * at_edge) / bound


@triton.jit
def conditioned(
    made, statics, tables, taps, total, scale,
    ROWS: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr, SIDES: tl.constexpr,
):  # fmt: skip
    """Return what the columns of h_f are made of, for ``signals``: see ``kernel_parts``; nothing of G where static."""
    BLOCKS: tl.constexpr = H // BLOCK
    if SIDES:
        return kernel_parts(made[2], made[3], statics, tables, taps, total, scale, H, BLOCK, K) + (made[3],)
    else:
        bound = tl.zeros((ROWS,), tl.float32) + statics[2 * BLOCKS + 1]
        return (), 0.0, bound, statics[2 * BLOCKS] / bound, 0.0


@triton.jit
def kernel_columns(
    sizes, edge, bound, most, statics, bands, taps, total, scale, block,
    H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr, SIDES: tl.constexpr,
):  # fmt: skip
    """Return a block of columns of h_f over its bound: real and imaginary parts."""
    BLOCKS: tl.constexpr = H // BLOCK
    share = 1.0 / bound
    h = statics[block] * share[:, None]
    if SIDES:
        dependent = through(sizes, bands, block, BLOCKS)
        dependent = plus_edge(dependent, edge, taps, total, columns(block, BLOCK), True, H, K)
        h += (most * (total * scale) * share)[:, None] * dependent
    return h, statics[BLOCKS + block] * share[:, None]


@triton.jit
def weighted(re, im, block, BLOCK: tl.constexpr):
    """Return a block of a spectrum as operands of half its inverse transform: bins without mirror images are halved."""
    if block == 0:
        first = columns(0, BLOCK) == 0
        re, im = tl.where(first, 0.5 * re, re), tl.where(first, 0.5 * im, im)
    return re.to(tl.float16), im.to(tl.float16)


@triton.jit
def synthesis(res, ims, tables, BLOCKS: tl.constexpr):
    """Return the sum of cosines and sines that a spectrum, in blocks of float16, stands for."""
    out = tl.dot(res[0], tl.trans(tables[0]))
    out = tl.dot(ims[0], tl.trans(tables[BLOCKS]), out)
    for i in tl.static_range(1, BLOCKS):
        out = tl.dot(res[i], tl.trans(tables[i]), out)
        out = tl.dot(ims[i], tl.trans(tables[BLOCKS + i]), out)
    return out
