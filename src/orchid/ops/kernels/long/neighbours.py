"""Neighbours in frequency of rows of bins: what the frequency Conv1d of a long row reads, and its gradient.

Bin k + o of row r is bin k of row r + o. Numbers that are the same at k and n - k are kept in slots, one a row
r = -P ... R / 2 + P, P = K // 2 (float16, ``in_order``, over their largest, which is kept beside): rows beyond 0 and
R / 2 are others backwards.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.four_step.transform import in_order, put_in_order
from orchid.ops.kernels.streams.tiles import TINY


@triton.jit
def _along(N1: tl.constexpr, N2: tl.constexpr):
    """Return k2 of every place of a row's bins, (N1, N2)."""
    return tl.arange(0, N1)[:, None] + N1 * tl.arange(0, N2)[None, :]


@triton.jit
def _row_bins(r, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr):
    """Return k of the bins of row r that have k <= n / 2, n - k of the others."""
    k = r + R * _along(N1, N2)
    return tl.where(k > R * N1 * N2 // 2, R * N1 * N2 - k, k)


@triton.jit
def _ordered(k2, N1: tl.constexpr, N2: tl.constexpr):
    """Return where ``put_in_order`` puts k2."""
    row, column = k2 % N1, k2 // N1
    lane = row // 16 * 32 + row % 8 * 4 + column % 8 // 2
    return (column // 8 * (2 * N1) + lane) * 4 + row // 8 % 2 * 2 + column % 2


@triton.jit
def in_place(place, N1: tl.constexpr):
    """Return the k2 that ``put_in_order`` puts in a place."""
    lane, column = place // 4 % (2 * N1), place // (8 * N1) * 8
    row = lane // 32 * 16 + lane // 4 % 8 + place // 2 % 2 * 8
    return row + N1 * (column + lane % 4 * 2 + place % 2)


@triton.jit
def put_slots(slots, scales, r, x, factor, K: tl.constexpr, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr):
    """Store x (N1, N2) times a factor as the slot of row r, and of the row that mirrors it, if one does."""
    P: tl.constexpr = K // 2
    Q: tl.constexpr = N1 * N2
    most = tl.maximum(tl.max(tl.abs(x)), TINY)
    x = (x * (1.0 / most)).to(tl.float16)
    put_in_order(slots + (P + r) * Q, x, N1, N2)
    tl.store(scales + P + r, most * factor)
    if (r > 0) & (r <= P):  # k2 -> -k2
        tl.store(slots + (P - r) * Q + _ordered((Q - _along(N1, N2)) % Q, N1, N2), x)
        tl.store(scales + P - r, most * factor)
    if (r < R // 2) & (r >= R // 2 - P):  # k2 -> -1 - k2
        tl.store(slots + (P + R - r) * Q + _ordered(Q - 1 - _along(N1, N2), N1, N2), x)
        tl.store(scales + P + R - r, most * factor)


@triton.jit
def met(
    slots, scales, r, j, K: tl.constexpr, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, WEIGHED: tl.constexpr
):  # fmt: skip
    """Return what tap j meets at the bins of row r, (N1, N2), zero outside 0 ... n / 2, and what it is to be times.

    The right half of a row lies beyond n / 2: mirror images, whose neighbours have changed places. (Bin n / 2 itself,
    in row 0, mirrors itself.) WEIGHED, over the bin's weight and times its neighbour's: 1 for DC and Nyquist, 2 for
    others.
    """
    P: tl.constexpr = K // 2
    Q: tl.constexpr = N1 * N2
    beyond = tl.arange(0, N2)[None, :] >= N2 // 2
    x, scale = in_order(slots + (r + j) * Q, N1, N2).to(tl.float32), tl.load(scales + r + j)
    by_column = tl.where(beyond, tl.load(scales + r + 2 * P - j), scale)
    if j != P:
        x = tl.where(beyond, in_order(slots + (r + 2 * P - j) * Q, N1, N2).to(tl.float32), x)
        if r <= P:  # others are nowhere near an end
            k = _row_bins(r, R, N1, N2)
            near = k + (j - P)
            x = tl.where((near >= 0) & (near <= R * Q // 2), x, 0.0)
            if WEIGHED:
                x = tl.where((near == 0) | (near == R * Q // 2), 0.5 * x, x)
                x = tl.where((k == 0) | (k == R * Q // 2), 2.0 * x, x)
    return x, by_column
