"""The kernel of ``dense.py``, whose docstring has its algebra."""

import triton
import triton.language as tl

from orchid.ops.kernels.spectrum import _magnitude
from orchid.ops.kernels.time_domain import _conv, _joined, _pair_conv, _pairs, _real


@triton.jit
def _row_scaled(x):
    """Return x (R, n) in float16, each row divided by its largest magnitude, and those (R, 1)."""
    largest = tl.max(tl.abs(x), axis=1)
    largest = tl.where(largest > 0, largest, 1.0)[:, None]
    return (x / largest).to(tl.float16), largest


@triton.jit
def dense_kernel(
    p, u, weight, bias, spatial, spectral, pad, u_pad, h0, cosines, sines, shifts, y,
    rows, D, length, u_length, period, p_batch, p_channel, p_time, u_batch, u_channel, u_time, scale,
    SIDES: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, HAS_U_PAD: tl.constexpr,
    PAIRED: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write y (B, D, L) for ROWS rows; h0 (D, N / 2 + 1, 2)."""
    H: tl.constexpr = N // 2
    index = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = tl.minimum(index, rows - 1).to(tl.int64)[:, None]
    b, d = row // D, row % D
    t, k = tl.arange(0, N)[None, :], tl.arange(0, H)[None, :]
    channel, pads = p + b * p_batch + d * p_channel, pad + b * length
    real = _real(t, length, pads, HAS_PAD)
    if PAIRED:
        x0, x1, b0, b1 = _pairs(channel, k, length // 2, period, CIRCULAR)
        v0, v1 = _pair_conv(x0, x1, b0, b1, weight + d * 3)
        y0, y1, c0, c1 = _pairs(channel + D * p_channel, k, length // 2, period, CIRCULAR)
        s0, s1 = _pair_conv(y0, y1, c0, c1, weight + (D + d) * 3)
        v_bias, s_bias = tl.load(bias + d), tl.load(bias + D + d)
        a = _joined((v0 + v_bias) * (s0 + s_bias), (v1 + v_bias) * (s1 + s_bias), ROWS, N)
    else:
        v = _conv(channel, weight + d * 3, t, p_time, length, pads, period, 3, SHIFT, CIRCULAR, HAS_PAD)
        s = _conv(
            channel + D * p_channel, weight + (D + d) * 3, t, p_time, length, pads, period, 3, SHIFT, CIRCULAR, HAS_PAD
        )
        a = (v + tl.load(bias + d)) * (s + tl.load(bias + D + d))
    a = tl.where(real, a, 0.0)
    matrix = tl.arange(0, N)[:, None] * H + k
    cos, sin = tl.load(cosines + matrix), tl.load(sines + matrix)
    operand, size = _row_scaled(a)
    a_re, a_im = tl.dot(operand, cos), tl.dot(operand, sin)
    edge = k == 0  # column 0 holds DC in its real part and Nyquist in its imaginary one
    h0 += d * (2 * (H + 1))
    h_re, h_im, h_last = tl.load(h0 + 2 * k), tl.load(h0 + 2 * k + 1), tl.load(h0 + 2 * H)
    if SIDES == 1:
        if PAIRED:  # only where u is v
            g0, g1 = _pair_conv(x0, x1, b0, b1, spatial + d * 3)
            g = tl.where(real, _joined(g0, g1, ROWS, N), 0.0)
        else:
            source, u_pads = u + b * u_batch + d * u_channel, u_pad + b * u_length
            g = _conv(source, spatial + d * 3, t, u_time, u_length, u_pads, period, 3, SHIFT, CIRCULAR, HAS_U_PAD)
            g = tl.where(_real(t, u_length, u_pads, HAS_U_PAD), g, 0.0)
        operand, g_size = _row_scaled(g)
        g_re, g_im = tl.dot(operand, cos), tl.dot(operand, sin)
        m = tl.where(edge, tl.abs(g_re), _magnitude(g_re, g_im))
        last = tl.sum(tl.where(edge, tl.abs(g_im), 0.0), axis=1)[:, None]
        square = tl.arange(0, H)[:, None] * H + k
        half = m.to(tl.float16)
        before, after = tl.dot(half, tl.load(shifts + square)), tl.dot(half, tl.load(shifts + H * H + square))
        after += tl.where(k == H - 1, last, 0.0)
        taps, unit = spectral + d * 3, g_size * scale
        s0, s1, s2 = tl.load(taps) * unit, tl.load(taps + 1) * unit, tl.load(taps + 2) * unit
        h_re += s0 * before + s1 * m + s2 * after
        h_last += s0 * tl.sum(tl.where(k == H - 1, m, 0.0), axis=1)[:, None] + s1 * last
    # The sines' products are minus the imaginary parts, except Nyquist's.
    c_re = h_re * a_re + tl.where(edge, 0.0, h_im * a_im)
    c_im = tl.where(edge, h_last * a_im, 2.0 * (h_re * a_im - h_im * a_re))
    c_re = tl.where(edge, c_re, 2.0 * c_re)
    largest = tl.maximum(tl.max(tl.abs(c_re), axis=1), tl.max(tl.abs(c_im), axis=1))
    largest = tl.where(largest > 0, largest, 1.0)[:, None]
    c_re, c_im = (c_re / largest).to(tl.float16), (c_im / largest).to(tl.float16)
    c = (tl.dot(c_re, tl.trans(cos)) + tl.dot(c_im, tl.trans(sin))) * (largest * size)
    gate = channel + 2 * D * p_channel
    if PAIRED:
        x0, x1, b0, b1 = _pairs(gate, k, length // 2, period, CIRCULAR)
        even, odd = _pair_conv(x0, x1, b0, b1, weight + (2 * D + d) * 3)
        s = _joined(even, odd, ROWS, N)
    else:
        s = _conv(gate, weight + (2 * D + d) * 3, t, p_time, length, pads, period, 3, SHIFT, CIRCULAR, HAS_PAD)
    s = tl.where(real, s + tl.load(bias + 2 * D + d), 0.0)
    inside = (index < rows)[:, None] & (t < length)
    tl.store(y + row * length + t, (s * c).to(y.dtype.element_ty), mask=inside)
