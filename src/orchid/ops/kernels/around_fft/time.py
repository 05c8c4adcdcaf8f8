"""The time side of the fused layer: short convolutions and gates, before and after the transforms.

A program handles two neighbouring channels of a sample, d and d + 1, and a block of pairs of positions, 2 m and
2 m + 1. Two channels are the real and the imaginary part of one complex row (``spectra.py`` says why); two 16-bit
positions are one 32-bit word, where a load shifted by a single position would be two bytes at a time (PAIRED). What a
convolution needs from its neighbours is read again: it is in cache. Everything is computed in float32.

Positions: K taps meet t - (K - 1) + j + SHIFT, j = 0 ... K - 1, wrapped at ``period`` when CIRCULAR. A stream is what
the projection left, plus its bias (``offset``); outside the sequence and where masked it is zero.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.parameters import parameters, wrapped


@triton.jit
def real_at(t, length, pad, HAS_PAD: tl.constexpr):
    """Return whether positions hold real tokens."""
    real = (t >= 0) & (t < length)
    if HAS_PAD:
        real = real & (tl.load(pad + t, mask=real, other=1) == 0)
    return real


@triton.jit
def value(
    pointer, m, stride, offset, length, pad, period,
    AT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Return positions 2 m + AT of a stream."""
    t = wrapped(2 * m + AT, period, CIRCULAR)
    real = real_at(t, length, pad, HAS_PAD)
    if PAIRED:
        at = wrapped(m + AT // 2, period // 2, CIRCULAR)
        words = pointer.to(tl.pointer_type(tl.int32))
        word = tl.load(words + at, mask=(at >= 0) & (at < length // 2), other=0)
        if pointer.dtype.element_ty == tl.bfloat16:  # the upper half of a float32
            x = (word & -65536 if AT % 2 == 1 else word << 16).to(tl.float32, bitcast=True)
        else:
            bits = word >> 16 if AT % 2 == 1 else word
            x = bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        x = tl.load(pointer + t.to(tl.int64) * stride, mask=real, other=0.0).to(tl.float32)
    return tl.where(real, x + offset, 0.0)


@triton.jit
def short(
    row, own, m, stride, length, pad, period,
    AT: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr,
    PAIRED: tl.constexpr,
):  # fmt: skip
    """Return bias + sum_j taps[j] x[2 m + AT - (K - 1) + j + SHIFT], with taps, bias and offset in ``own``."""
    total = tl.zeros(m.shape, tl.float32) + own[K]
    for j in tl.static_range(K):
        total += own[j] * value(
            row, m, stride, own[K + 1], length, pad, period, AT - (K - 1) + j + SHIFT, CIRCULAR, HAS_PAD, PAIRED
        )
    return total


@triton.jit
def _cells(pointer, m):
    """Return addresses (M, position, channel) of complex cells 2 m and 2 m + 1."""
    side = tl.arange(0, 2)
    return pointer + 4 * m[:, None, None] + 2 * side[None, :, None] + side[None, None, :]


@triton.jit
def _within(m, count):
    """Return which of the positions 2 m and 2 m + 1 lie in 0 ... count - 1, (M, 2, 1)."""
    t = (2 * m)[:, None] + tl.arange(0, 2)[None, :]
    return ((t >= 0) & (t < count))[:, :, None]


@triton.jit
def get_cells(pointer, m, n):
    """Load the even and odd positions of channel d, then of d + 1."""
    x, y = tl.split(tl.load(_cells(pointer, m), mask=_within(m, n), other=0.0))
    x0, x1 = tl.split(x)
    y0, y1 = tl.split(y)
    return x0, x1, y0, y1


@triton.jit
def _put_cells(pointer, m, n, x0, x1, y0, y1):
    """Store what ``get_cells`` loads."""
    tl.store(_cells(pointer, m), tl.join(tl.join(x0, x1), tl.join(y0, y1)), mask=_within(m, n))


@triton.jit
def _put_mirrored(pointer, m, n, x0, x1, y0, y1):
    """Store positions t = 2 m and 2 m + 1 of the first half of a row of n at n - 1 - t."""
    back = n // 2 - 1 - m
    there = (2 * back)[:, None] + tl.arange(0, 2)[None, :] >= n // 2
    tl.store(_cells(pointer, back), tl.join(tl.join(x1, x0), tl.join(y1, y0)), mask=there[:, :, None])


@triton.jit
def put_row(pointer, m, length, even, odd):
    """Store positions 2 m and 2 m + 1 of a contiguous row."""
    t = (2 * m)[:, None] + tl.arange(0, 2)[None, :]
    tl.store(pointer + t, tl.join(even, odd).to(pointer.dtype.element_ty), mask=t < length)


@launched
@triton.jit(do_not_specialize=["first"])
def signals_kernel(
    p, u, dy, offset, weight, bias, spatial, pad, u_pad, out,
    first, D, batch, length, u_length, period, n,
    p_batch, p_channel, p_time, u_batch, u_channel, u_time, dy_batch, dy_channel, dy_time,
    SIDES: tl.constexpr, GRAD: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    HAS_PAD: tl.constexpr, HAS_U_PAD: tl.constexpr, PAIRED: tl.constexpr, U_PAIRED: tl.constexpr,
    MIRRORED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a = s_1 * v, the SIDES conditioning sequences Conv1d_t(u) and with GRAD dc = s_2 * dy, zero padded to n.

    MIRRORED they are padded to n / 2, and follow once more backwards.

    out (pairs, B, 1 + SIDES + GRAD, n) complex, for the channels from ``first`` on. A channel that is not there, beside
    the last of an odd number, is zero.
    """
    row = tl.program_id(0).to(tl.int64)
    pair, b = row // batch, row % batch
    m = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    pads, u_pads = pad + b * length, u_pad + b * u_length
    even, odd = real_at(2 * m, length, pads, HAS_PAD), real_at(2 * m + 1, length, pads, HAS_PAD)
    u_even, u_odd = real_at(2 * m, u_length, u_pads, HAS_U_PAD), real_at(2 * m + 1, u_length, u_pads, HAS_U_PAD)
    cells = ()  # of both channels, stored at the end: a store between would have the streams read again
    for i in tl.static_range(2):
        d = first + 2 * pair + i
        here = d < D
        d = tl.minimum(d, D - 1)
        v_row = p + b * p_batch + d * p_channel
        s_row = p + b * p_batch + (D + d) * p_channel  # d has 64 bits, D has not
        v, s = parameters(weight, bias, offset, d, K, True), parameters(weight, bias, offset, D + d, K, True)
        v0 = short(v_row, v, m, p_time, length, pads, period, 0, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
        v1 = short(v_row, v, m, p_time, length, pads, period, 1, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
        s0 = short(s_row, s, m, p_time, length, pads, period, 0, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
        s1 = short(s_row, s, m, p_time, length, pads, period, 1, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
        cells = cells + (tl.where(even & here, v0 * s0, 0.0), tl.where(odd & here, v1 * s1, 0.0))
        for side in tl.static_range(SIDES):
            u_row = u + b * u_batch + d * u_channel
            g = parameters(spatial + side * D * K, bias, offset, d, K, False)
            g0 = short(u_row, g, m, u_time, u_length, u_pads, period, 0, K, SHIFT, CIRCULAR, HAS_U_PAD, U_PAIRED)
            g1 = short(u_row, g, m, u_time, u_length, u_pads, period, 1, K, SHIFT, CIRCULAR, HAS_U_PAD, U_PAIRED)
            cells = cells + (tl.where(u_even & here, g0, 0.0), tl.where(u_odd & here, g1, 0.0))
        if GRAD:
            t_row = p + b * p_batch + (2 * D + d) * p_channel
            t = parameters(weight, bias, offset, 2 * D + d, K, True)
            grad = dy + b * dy_batch + d * dy_channel
            s0 = short(t_row, t, m, p_time, length, pads, period, 0, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
            s1 = short(t_row, t, m, p_time, length, pads, period, 1, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
            g0 = value(grad, m, dy_time, 0.0, length, pads, period, 0, False, HAS_PAD, PAIRED)
            g1 = value(grad, m, dy_time, 0.0, length, pads, period, 1, False, HAS_PAD, PAIRED)
            cells = cells + (tl.where(here, s0 * g0, 0.0), tl.where(here, s1 * g1, 0.0))
    ROWS: tl.constexpr = 1 + SIDES + GRAD
    for i in tl.static_range(ROWS):
        target = out + (row * ROWS + i) * 2 * n
        x0, x1, y0, y1 = cells[2 * i], cells[2 * i + 1], cells[2 * (ROWS + i)], cells[2 * (ROWS + i) + 1]
        if MIRRORED:
            _put_cells(target, m, n // 2, x0, x1, y0, y1)
            _put_mirrored(target, m, n, x0, x1, y0, y1)
        else:
            _put_cells(target, m, n, x0, x1, y0, y1)


@launched
@triton.jit(do_not_specialize=["first"])
def gate_kernel(
    p, offset, weight, bias, c, pad, y,
    first, D, batch, length, period, n, p_batch, p_channel, p_time, y_batch, y_channel,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, PAIRED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * c (B, D, L), zero where masked; c (pairs, B, n) complex."""
    row = tl.program_id(0).to(tl.int64)
    pair, b = row // batch, row % batch
    m = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    pads = pad + b * length
    even, odd = real_at(2 * m, length, pads, HAS_PAD), real_at(2 * m + 1, length, pads, HAS_PAD)
    cells = get_cells(c + row * 2 * n, m, n)
    for i in tl.static_range(2):
        d = first + 2 * pair + i
        at = 2 * D + tl.minimum(d, D - 1)
        s_row, s = p + b * p_batch + at * p_channel, parameters(weight, bias, offset, at, K, True)
        s0 = short(s_row, s, m, p_time, length, pads, period, 0, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
        s1 = short(s_row, s, m, p_time, length, pads, period, 1, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
        s0, s1 = tl.where(even, s0 * cells[2 * i], 0.0), tl.where(odd, s1 * cells[2 * i + 1], 0.0)
        put_row(y + b * y_batch + d * y_channel, m, tl.where(d < D, length, 0), s0, s1)
