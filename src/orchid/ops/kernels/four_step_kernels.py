"""The two kernels of ``four_step.py``, whose docstring has their algebra."""

import triton
import triton.language as tl

from orchid.ops.kernels.spectrum import _magnitude
from orchid.ops.kernels.time_domain import _conv, _joined, _pair_conv, _pairs, _real


@triton.jit
def _scaled(x):
    """Return x in float16, divided by its largest magnitude, and that magnitude."""
    largest = tl.max(tl.max(tl.abs(x), axis=1), axis=0)
    largest = tl.where(largest > 0, largest, 1.0)
    return (x / largest).to(tl.float16), largest


@triton.jit
def _transform(
    x, left, right, twiddle, odd, N1: tl.constexpr, N2: tl.constexpr, ROOT: tl.constexpr
):  # fmt: skip
    """Return the transform of x (N1, N2) over its largest value: main tile (H, N2), odd row (N2,), and that value."""
    H: tl.constexpr = N1 // 2
    k1, t1, i2 = tl.arange(0, H), tl.arange(0, N1), tl.arange(0, N2)
    operand, largest = _scaled(x)
    first = left + k1[:, None] * N1 + t1[None, :]
    y_re = tl.dot(tl.load(first), operand)
    y_im = -tl.dot(tl.load(first + H * N1), operand)
    turn = twiddle + k1[:, None] * N2 + i2[None, :]
    cos, sin = tl.load(turn), tl.load(turn + H * N2)
    u_re, u_im = (y_re * cos + y_im * sin).to(tl.float16), (y_im * cos - y_re * sin).to(tl.float16)
    second = right + i2[:, None] * N2 + i2[None, :]
    cos2, sin2 = tl.load(second), tl.load(second + N2 * N2)
    z_re = tl.dot(u_re, cos2) + tl.dot(u_im, sin2)
    z_im = tl.dot(u_im, cos2) - tl.dot(u_re, sin2)
    sign = 1.0 - 2.0 * (t1 % 2).to(tl.float32)
    alternating = tl.sum(x * sign[:, None], axis=0) * (ROOT / largest)
    last = odd + i2[:, None] * N2 + i2[None, :]
    odd_re = tl.sum(alternating[:, None] * tl.load(last), axis=0)
    odd_im = -tl.sum(alternating[:, None] * tl.load(last + N2 * N2), axis=0)
    return z_re, z_im, odd_re, odd_im, largest


@triton.jit
def spectra_kernel(
    p, u, weight, bias, spatial, pad, u_pad, left, right, twiddle, odd, spectrum, magnitude, scales,
    D, length, u_length, period, p_batch, p_channel, p_time, u_batch, u_channel, u_time, scale,
    SIDES: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, HAS_U_PAD: tl.constexpr,
    PAIRED: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, ROOT: tl.constexpr,
):  # fmt: skip
    """Write the tiles of T(s_1 * v) and |T Conv1d_t(u)|, over the largest value of what was transformed.

    spectrum (B D, 2, H + 1, N2), magnitude (B D, H + 1, N2), scales (B D, 2): what to multiply them by. ROOT = N1^-1/2.
    """
    H: tl.constexpr = N1 // 2
    row = tl.program_id(0).to(tl.int64)
    b, d = row // D, row % D
    i2, k1 = tl.arange(0, N2), tl.arange(0, H)
    t = tl.arange(0, N1)[:, None] * N2 + i2[None, :]
    channel, pads = p + b * p_batch + d * p_channel, pad + b * length
    if PAIRED:
        m = tl.arange(0, N1)[:, None] * (N2 // 2) + tl.arange(0, N2 // 2)[None, :]
        x0, x1, b0, b1 = _pairs(channel, m, length // 2, period, CIRCULAR)
        v0, v1 = _pair_conv(x0, x1, b0, b1, weight + d * 3)
        y0, y1, c0, c1 = _pairs(channel + D * p_channel, m, length // 2, period, CIRCULAR)
        s0, s1 = _pair_conv(y0, y1, c0, c1, weight + (D + d) * 3)
        v_bias, s_bias = tl.load(bias + d), tl.load(bias + D + d)
        inside = m < length // 2
        a0 = tl.where(inside, (v0 + v_bias) * (s0 + s_bias), 0.0)
        a1 = tl.where(inside, (v1 + v_bias) * (s1 + s_bias), 0.0)
        a = _joined(a0, a1, N1, N2)
    else:
        v = _conv(channel, weight + d * 3, t, p_time, length, pads, period, 3, SHIFT, CIRCULAR, HAS_PAD)
        s = _conv(
            channel + D * p_channel, weight + (D + d) * 3, t, p_time, length, pads, period, 3, SHIFT, CIRCULAR, HAS_PAD
        )
        a = (v + tl.load(bias + d)) * (s + tl.load(bias + D + d))
        a = tl.where(_real(t, length, pads, HAS_PAD), a, 0.0)
    re, im, odd_re, odd_im, largest = _transform(a, left, right, twiddle, odd, N1, N2, ROOT)
    tl.store(scales + 2 * row, largest)
    kind = spectrum.dtype.element_ty
    tile = k1[:, None] * N2 + i2[None, :]
    target = spectrum + row * 2 * (H + 1) * N2
    tl.store(target + tile, re.to(kind))
    tl.store(target + (H + 1) * N2 + tile, im.to(kind))
    tl.store(target + H * N2 + i2, odd_re.to(kind))
    tl.store(target + (2 * H + 1) * N2 + i2, odd_im.to(kind))
    if SIDES == 1:
        if PAIRED:  # only where u is v
            g0, g1 = _pair_conv(x0, x1, b0, b1, spatial + d * 3)
            g = _joined(tl.where(inside, g0, 0.0), tl.where(inside, g1, 0.0), N1, N2)
        else:
            source, u_pads = u + b * u_batch + d * u_channel, u_pad + b * u_length
            g = _conv(source, spatial + d * 3, t, u_time, u_length, u_pads, period, 3, SHIFT, CIRCULAR, HAS_U_PAD)
            g = tl.where(_real(t, u_length, u_pads, HAS_U_PAD), g, 0.0)
        re, im, odd_re, odd_im, largest = _transform(g, left, right, twiddle, odd, N1, N2, ROOT)
        tl.store(scales + 2 * row + 1, largest * scale)
        target = magnitude + row * (H + 1) * N2
        tl.store(target + tile, _magnitude(re, im).to(kind))
        tl.store(target + H * N2 + i2, _magnitude(odd_re, odd_im).to(kind))


@triton.jit
def convolve_kernel(
    p, weight, bias, pad, h0, taps, spectrum, magnitude, scales, left, right, twiddle, odd, y,
    D, length, period, p_batch, p_channel, p_time,
    SIDES: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr,
    PAIRED: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, ROOT: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * T^-1(h_f A), (B, D, L); h0 (D, (H + 1) N2, 2) in the tiles' order."""
    H: tl.constexpr = N1 // 2
    row = tl.program_id(0).to(tl.int64)
    b, d = row // D, row % D
    k1, t1, i2 = tl.arange(0, H), tl.arange(0, N1), tl.arange(0, N2)
    tile = k1[:, None] * N2 + i2[None, :]
    h0 += d * 2 * (H + 1) * N2
    h_re, h_im = tl.load(h0 + 2 * tile), tl.load(h0 + 2 * tile + 1)
    odd_h_re, odd_h_im = tl.load(h0 + 2 * (H * N2 + i2)), tl.load(h0 + 2 * (H * N2 + i2) + 1)
    if SIDES == 1:
        m = magnitude + row * (H + 1) * N2
        size = tl.load(scales + 2 * row + 1)
        s0, s1, s2 = tl.load(taps + d * 3) * size, tl.load(taps + d * 3 + 1) * size, tl.load(taps + d * 3 + 2) * size
        # The tap to the left of a bin in the upper half is the one to the right of its mirror image.
        first = (k1 == 0)[:, None]
        upper = (i2 >= N2 // 2)[None, :] & ((k1 > 0)[:, None] | (i2 > N2 // 2)[None, :])
        before = tl.where(first, N2 + (N2 - i2[None, :]) % N2, tile - N2)  # k1 = 0: the mirror (1, -k2)
        dc, nyquist = first & (i2 == 0)[None, :], first & (i2 == N2 // 2)[None, :]
        low = tl.where(dc, 0.0, tl.load(m + before).to(tl.float32))
        high = tl.where(nyquist, 0.0, tl.load(m + tile + N2).to(tl.float32))
        h_re += tl.where(upper, s2, s0) * low + s1 * tl.load(m + tile).to(tl.float32) + tl.where(upper, s0, s2) * high
        upper_odd = i2 >= N2 // 2
        low = tl.load(m + (H - 1) * N2 + i2).to(tl.float32)
        high = tl.load(m + (H - 1) * N2 + (N2 - 1 - i2)).to(tl.float32)
        middle = tl.load(m + H * N2 + i2).to(tl.float32)
        odd_h_re += tl.where(upper_odd, s2, s0) * low + s1 * middle + tl.where(upper_odd, s0, s2) * high
    a = spectrum + row * 2 * (H + 1) * N2
    a_re, a_im = tl.load(a + tile).to(tl.float32), tl.load(a + (H + 1) * N2 + tile).to(tl.float32)
    c_re, c_im = h_re * a_re - h_im * a_im, h_re * a_im + h_im * a_re
    a_re = tl.load(a + H * N2 + i2).to(tl.float32)
    a_im = tl.load(a + (2 * H + 1) * N2 + i2).to(tl.float32)
    odd_re, odd_im = odd_h_re * a_re - odd_h_im * a_im, odd_h_re * a_im + odd_h_im * a_re
    largest = tl.maximum(tl.max(tl.max(tl.abs(c_re), axis=1), axis=0), tl.max(tl.max(tl.abs(c_im), axis=1), axis=0))
    largest = tl.where(largest > 0, largest, 1.0)
    c_re, c_im = (c_re / largest).to(tl.float16), (c_im / largest).to(tl.float16)
    second = right + i2[:, None] * N2 + i2[None, :]
    cos2, sin2 = tl.load(second), tl.load(second + N2 * N2)
    v_re = tl.dot(c_re, cos2) - tl.dot(c_im, sin2)
    v_im = tl.dot(c_im, cos2) + tl.dot(c_re, sin2)
    turn = twiddle + tile
    cos, sin = tl.load(turn), tl.load(turn + H * N2)
    count = tl.where(k1 == 0, 1.0, 2.0)[:, None]  # a row with a mirror image counts twice
    w_re, w_im = ((v_re * cos - v_im * sin) * count).to(tl.float16), ((v_im * cos + v_re * sin) * count).to(tl.float16)
    back = left + k1[None, :] * N1 + t1[:, None]
    c = (tl.dot(tl.load(back), w_re) - tl.dot(tl.load(back + H * N1), w_im)) * largest
    last = odd + i2[:, None] * N2 + i2[None, :]
    q = tl.sum(odd_re[None, :] * tl.load(last) - odd_im[None, :] * tl.load(last + N2 * N2), axis=1)
    sign = 1.0 - 2.0 * (t1 % 2).to(tl.float32)
    c += sign[:, None] * q[None, :] * ROOT
    c *= tl.load(scales + 2 * row)
    t = t1[:, None] * N2 + i2[None, :]
    pads, gate = pad + b * length, p + b * p_batch + (2 * D + d) * p_channel
    if PAIRED:
        m = t1[:, None] * (N2 // 2) + tl.arange(0, N2 // 2)[None, :]
        x0, x1, b0, b1 = _pairs(gate, m, length // 2, period, CIRCULAR)
        even, odd_ones = _pair_conv(x0, x1, b0, b1, weight + (2 * D + d) * 3)
        s = _joined(even, odd_ones, N1, N2) + tl.load(bias + 2 * D + d)
    else:
        s = _conv(gate, weight + (2 * D + d) * 3, t, p_time, length, pads, period, 3, SHIFT, CIRCULAR, HAS_PAD)
        s = tl.where(_real(t, length, pads, HAS_PAD), s + tl.load(bias + 2 * D + d), 0.0)
    tl.store(y + row * length + t, (s * c).to(y.dtype.element_ty), mask=t < length)
