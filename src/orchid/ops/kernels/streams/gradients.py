"""Gradients of the projected streams and of their short convolutions' taps: ``streams_grad_kernel`` in octets,
of rows that took one kernel.

A program takes one channel and blocks of its octets, of all samples. What is summed for the taps stays in registers: no
atomics, the same bits from run to run. The gradient of an input is x'[t] = sum_j taps[j] g[t + (K - 1) - j - SHIFT].
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.octets import (
    around,
    convolved,
    in_eights,
    neighbours,
    put_octet,
    real_around,
    times,
    with_offset,
)
from orchid.ops.kernels.streams.parameters import parameters, side_parameters
from orchid.ops.kernels.sums import plus, zeros


@triton.jit
def _spread(g, taps, K: tl.constexpr):
    """Return the gradients of eight inputs from those of 8 + K - 1 outputs."""
    out = ()
    for i in tl.static_range(8):
        total = taps[K - 1] * g[i]
        for j in tl.static_range(1, K):
            total += taps[K - 1 - j] * g[i + j]
        out = out + (total,)
    return out


@triton.jit
def _plus(x, y):
    out = ()
    for i in tl.static_range(8):
        out = out + (x[i] + y[i],)
    return out


@triton.jit
def _total(x):
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))


@triton.jit
def _tap_sums(x, g, K: tl.constexpr):
    """Return the K products of eight gradients with what the taps met: x from its position 8 m - (K - 1) + SHIFT on."""
    sums = ()
    for j in tl.static_range(K):
        total = g[0] * x[j]
        for i in tl.static_range(1, 8):
            total += g[i] * x[i + j]
        sums = sums + (total,)
    return sums


@triton.jit
def _put(row, m, inside, real, x, BLOCK: tl.constexpr):
    """Store octets m, zero where no token is real; return the sum of what is stored."""
    kept = with_offset(x, 0.0, real, 8)
    put_octet(row, m, inside, kept, BLOCK)
    return _total(kept)


@launched
@triton.jit(do_not_specialize=["first", "batch", "steps"])
def octet_grad_kernel(
    p, dy, offset, weight, bias, spatial, grads, pad, dp, partial,
    first, D, batch, octets, period,
    p_batch, p_channel, dy_batch, dy_channel, dp_batch, dp_channel, steps,
    SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write dp (B, 3 D, L) and the sums for taps, biases, offsets; rows have ``octets`` octets, the circle ``period``.

    grads (channels, 2 + SIDES, B, L): da, the gradients of the conditioning sequences, c. partial (channels, parts,
    3 (K + 1) + 3 + SIDES K): for v, s_1, s_2 the taps and the bias, then the three offsets, then the taps of Conv1d_t.
    """
    COUNT: tl.constexpr = 3 * (K + 1) + 3 + SIDES * K
    WIDE: tl.constexpr = 8 + K - 1
    BACK: tl.constexpr = K - 1 - SHIFT
    own, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = first + own
    p_batch, p_channel = in_eights(p_batch), in_eights(p_channel)
    dy_batch, dy_channel = in_eights(dy_batch), in_eights(dy_channel)
    dp_batch, dp_channel = in_eights(dp_batch), in_eights(dp_channel)
    v_own, s_own = parameters(weight, bias, offset, d, K, True), parameters(weight, bias, offset, D + d, K, True)
    t_own = parameters(weight, bias, offset, 2 * D + d, K, True)
    g_own = side_parameters(spatial, bias, offset, d, D, SIDES, K)
    plane = batch.to(tl.int64) * octets * 8
    sums = zeros(COUNT, BLOCK)
    for step in range(steps):
        item = (part * steps + step) * BLOCK + tl.arange(0, BLOCK)
        inside = item < batch * octets
        b, m = (item // octets).to(tl.int64), item % octets
        before, after, is_before, is_after = neighbours(m, octets, period, inside, CIRCULAR)
        # of positions 8 m - (K - 1) ... 8 m + 7 + (K - 1)
        real = real_around(
            pad + b * (octets * 8), m, before, after, inside, is_before, is_after, K - 1, K - 1, HAS_PAD, BLOCK
        )  # fmt: skip
        wide = real[BACK : BACK + WIDE]  # positions 8 m - SHIFT ... 8 m + 7 + K - 1 - SHIFT
        here = real[K - 1 : K + 7]
        row = p + b * p_batch
        v_row, s_row, t_row = row + d * p_channel, row + (D + d) * p_channel, row + (2 * D + d) * p_channel
        v = around(v_row, m, before, after, inside, is_before, is_after, K - 1, K - 1, BLOCK)
        s = around(s_row, m, before, after, inside, is_before, is_after, K - 1, K - 1, BLOCK)
        v = with_offset(v, v_own[K + 1], real, 8 + 2 * (K - 1))
        s = with_offset(s, s_own[K + 1], real, 8 + 2 * (K - 1))
        rows = grads + own * (2 + SIDES) * plane + b * (octets * 8)
        da = around(rows, m, before, after, inside, is_before, is_after, SHIFT, BACK, BLOCK)
        dv = times(da, convolved(s, s_own, WIDE, K), wide, WIDE)
        ds = times(da, convolved(v, v_own, WIDE, K), wide, WIDE)
        dx = _spread(dv, v_own, K)
        more = _tap_sums(v[SHIFT:], dv[SHIFT : SHIFT + 8], K) + (_total(dv[SHIFT : SHIFT + 8]),)
        more = more + _tap_sums(s[SHIFT:], ds[SHIFT : SHIFT + 8], K) + (_total(ds[SHIFT : SHIFT + 8]),)
        conditioning = ()
        for side in tl.static_range(SIDES):
            g = around(rows + (1 + side) * plane, m, before, after, inside, is_before, is_after, SHIFT, BACK, BLOCK)
            g = with_offset(g, 0.0, wide, WIDE)
            dx = _plus(dx, _spread(g, g_own[side * (K + 2) :], K))
            conditioning = conditioning + _tap_sums(v[SHIFT:], g[SHIFT : SHIFT + 8], K)
        target = dp + b * dp_batch
        v_total = _put(target + d * dp_channel, m, inside, here, dx, BLOCK)
        s_total = _put(target + (D + d) * dp_channel, m, inside, here, _spread(ds, s_own, K), BLOCK)
        c = around(rows + (1 + SIDES) * plane, m, before, after, inside, is_before, is_after, SHIFT, BACK, BLOCK)
        grad = dy + b * dy_batch + d * dy_channel
        grad = around(grad, m, before, after, inside, is_before, is_after, SHIFT, BACK, BLOCK)
        dt = times(c, grad, wide, WIDE)
        t = around(t_row, m, before, after, inside, is_before, is_after, BACK, SHIFT, BLOCK)
        t = with_offset(t, t_own[K + 1], real[SHIFT:], WIDE)
        more = more + _tap_sums(t, dt[SHIFT : SHIFT + 8], K) + (_total(dt[SHIFT : SHIFT + 8]),)
        t_total = _put(target + (2 * D + d) * dp_channel, m, inside, here, _spread(dt, t_own, K), BLOCK)
        sums = plus(sums, more + (v_total, s_total, t_total) + conditioning, COUNT)
    place = partial + (own * tl.num_programs(1) + part) * COUNT
    for j in tl.static_range(COUNT):
        tl.store(place + j, tl.sum(sums[j]))
