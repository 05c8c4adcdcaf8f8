"""The DFT of long rows in three passes over memory: columns, rows with everything in frequency, columns.

A row of n = R Q values is x[t1, t2], t = Q t1 + t2; its bins are X[k1, k2], k = k1 + R k2:

    X[k1, k2] = sum_t2 w_Q^(t2 k2) w_n^(t2 k1) sum_t1 w_R^(t1 k1) x[t1, t2],      w_m = exp(-2 pi i / m).

The sum over t1, for TILE columns t2 at a time, is one matrix product; so is its twiddle's pass over memory: what it
leaves are rows k1 of Q complex numbers, and each of them is transformed in registers by two products, as a tile
(N1, N2), Q = N1 N2, just like a whole row in ``four_step/transform.py``.

For real x rows k1 and R - k1 mirror each other: rows 0 ... R / 2 are kept. The sums of rows 0 and R / 2 are real, and
are the real and the imaginary part of one stored row: a field is (R / 2, 2, Q) numbers, float16, no more than x has.
Every tile of columns, and on the way back every row, is divided by its largest number first, which is stored beside.
What float16 holds then is R at most on the way, R N1 (32,768 for the longest rows) between a row's stages, Q times the
square root of 2 on the way back.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.four_step.transform import in_order
from orchid.ops.kernels.streams.tiles import TINY


@triton.jit
def load_matrices(tables, R: tl.constexpr):
    """Load cosines and negative sines of the columns' transform, (R / 2, R) float16; the sine of row 0 is (-1)^t1."""
    place = tl.arange(0, R // 2)[:, None] * R + tl.arange(0, R)[None, :]
    return tl.load(tables + place), tl.load(tables + R * R // 2 + place)


@triton.jit
def load_row_stages(tables, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr):
    """Load cosines and negative sines of both stages of a row's transform, (N1, N1) and (N2, N2), float16."""
    first = tl.arange(0, N1)[:, None] * N1 + tl.arange(0, N1)[None, :]
    second = tl.arange(0, N2)[:, None] * N2 + tl.arange(0, N2)[None, :]
    tables += R * R
    further = tables + 2 * N1 * N1
    return (
        tl.load(tables + first),
        tl.load(tables + N1 * N1 + first),
        tl.load(further + second),
        tl.load(further + N2 * N2 + second),
    )


@triton.jit
def _in_field(tile, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr):
    """Return the places of a tile of columns, (R / 2, TILE), real parts."""
    return tl.arange(0, R // 2)[:, None] * (2 * Q) + tile * TILE + tl.arange(0, TILE)[None, :]


@triton.jit
def put_columns(field, scales, x, matrices, twiddles, tile, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr):
    """Store the transform of columns x (R, TILE), twiddled, into a field, and what it was divided by.

    ``twiddles`` (Q / TILE, 2, R / 2, TILE) are ``in_order``. Row 0 has none. The compiler lets warps stand across the
    columns of the product where it has fewer rows than columns (``Shape.across``).
    """
    ACROSS: tl.constexpr = R // 32 if R // 2 < TILE else 1
    most = tl.maximum(tl.max(tl.abs(x)), TINY)
    x = (x * (1.0 / most)).to(tl.float16)
    re, im = tl.dot(matrices[0], x), tl.dot(matrices[1], x)
    twiddles += tile * (R * TILE)
    c, s = in_order(twiddles, R // 2, TILE, ACROSS), in_order(twiddles + R * TILE // 2, R // 2, TILE, ACROSS)
    place = _in_field(tile, R, Q, TILE)
    tl.store(field + place, (re * c - im * s).to(tl.float16))
    tl.store(field + Q + place, (re * s + im * c).to(tl.float16))
    tl.store(scales + tile, most)


@triton.jit
def columns_in_time(field, scales, matrices, twiddles, tile, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr):
    """Return columns of the inverse transform of a field whose rows have been transformed back, (R, TILE).

    ``scales`` are those of rows 0 ... R / 2. ``twiddles`` (2, R / 2, Q).
    """
    k1, place = tl.arange(0, R // 2)[:, None], _in_field(tile, R, Q, TILE)
    re_scale, im_scale = tl.load(scales + k1), tl.load(scales + tl.where(k1 == 0, R // 2, k1))
    most = tl.maximum(tl.max(tl.maximum(re_scale, im_scale)), TINY)
    share = tl.where(k1 == 0, 0.5, 1.0) / most
    re = tl.load(field + place).to(tl.float32) * (re_scale * share)
    im = tl.load(field + Q + place).to(tl.float32) * (im_scale * share)
    wave = k1 * Q + tile * TILE + tl.arange(0, TILE)[None, :]
    c, s = tl.load(twiddles + wave), tl.load(twiddles + R // 2 * Q + wave)
    x = tl.dot(tl.trans(matrices[0]), (re * c + im * s).to(tl.float16))
    x = tl.dot(tl.trans(matrices[1]), (im * c - re * s).to(tl.float16), x)
    return x * (most * (2.0 / (R * Q)))


@triton.jit
def load_row(
    field, scales, half, r, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Load row k1 = r of a field: real and imaginary parts (N1, N2) float16, and what they are to be multiplied by.

    ``half`` (2, Q) is the twiddle of row R / 2, which its columns did not get.
    """
    Q: tl.constexpr = N1 * N2
    row = tl.arange(0, N1)[:, None] * N2
    place = row + tl.arange(0, N2)[None, :]
    most = tl.max(tl.load(scales + tl.arange(0, Q // TILE)))
    share = tl.load(scales + row // TILE) * (1.0 / most)
    field += tl.where(r == R // 2, 0, r) * (2 * Q)
    re, im = tl.load(field + place).to(tl.float32) * share, tl.load(field + Q + place).to(tl.float32) * share
    if r == 0:
        im = tl.zeros((N1, N2), tl.float32)
    if r == R // 2:
        re, im = im * tl.load(half + place), im * tl.load(half + Q + place)
    return re.to(tl.float16), im.to(tl.float16), most


@triton.jit
def row_spectrum(re, im, stages, twiddles, N1: tl.constexpr, N2: tl.constexpr):
    """Return the transform of a row (N1, N2) float16: real and imaginary parts, k2 = k1' + N1 k2'."""
    z_re, z_im = tl.dot(stages[0], re), tl.dot(stages[0], im)
    z_re, z_im = tl.dot(stages[1], -im, z_re), tl.dot(stages[1], re, z_im)
    c, s = in_order(twiddles, N1, N2), in_order(twiddles + N1 * N2, N1, N2)
    y_re, y_im = (z_re * c - z_im * s).to(tl.float16), (z_re * s + z_im * c).to(tl.float16)
    x_re, x_im = tl.dot(y_re, stages[2]), tl.dot(y_im, stages[2])
    return tl.dot(-y_im, stages[3], x_re), tl.dot(y_re, stages[3], x_im)


@triton.jit
def row_operand(re, im):
    """Return bins over their largest number, float16, and that number."""
    most = tl.maximum(tl.max(tl.maximum(tl.abs(re), tl.abs(im))), TINY)
    share = 1.0 / most
    return (re * share).to(tl.float16), (im * share).to(tl.float16), most


@triton.jit
def put_row(
    field, scales, half, r, operand, factor, stages, twiddles, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr
):  # fmt: skip
    """Store the inverse transform of a ``row_operand`` (N1, N2) times a factor as row r of a field."""
    Q: tl.constexpr = N1 * N2
    re, im, most = operand
    y_re, y_im = tl.dot(re, stages[2]), tl.dot(im, stages[2])
    y_re, y_im = tl.dot(im, stages[3], y_re), tl.dot(-re, stages[3], y_im)
    c, s = in_order(twiddles, N1, N2), in_order(twiddles + N1 * N2, N1, N2)
    z_re, z_im = (y_re * c + y_im * s).to(tl.float16), (y_im * c - y_re * s).to(tl.float16)
    x_re, x_im = tl.dot(stages[0], z_re), tl.dot(stages[0], z_im)
    x_re, x_im = tl.dot(stages[1], z_im, x_re), tl.dot(stages[1], -z_re, x_im)
    place = tl.arange(0, N1)[:, None] * N2 + tl.arange(0, N2)[None, :]
    if r == R // 2:  # real once its twiddle is taken back
        x_im = x_re * tl.load(half + place) + x_im * tl.load(half + Q + place)
    field += tl.where(r == R // 2, 0, r) * (2 * Q)
    tl.store(field + place, x_re.to(tl.float16), mask=(place >= 0) & (r < R // 2))
    tl.store(field + Q + place, x_im.to(tl.float16), mask=(place >= 0) & (r > 0))
    tl.store(scales + r, most * factor)
