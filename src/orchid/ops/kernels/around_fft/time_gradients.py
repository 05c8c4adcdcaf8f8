"""Gradients on the time side: of the projected streams, of a context, and of every short convolution's taps.

The layout is that of ``time.py``. A program goes through several blocks of its two channels, of one sample or
of many, and keeps the sums for the taps in registers: no atomics, the same bits from run to run. The gradient of an
input is x'[t] = sum_j taps[j] g[t + (K - 1) - j - SHIFT], so positions 2 m and 2 m + 1 need g at 2 m + AT for the K + 1
values AT = -SHIFT ... K - SHIFT.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.around_fft.time import get_cells, put_row, real_at, short, value
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.parameters import parameters, side_parameters, wrapped
from orchid.ops.kernels.sums import plus, zeros


@triton.jit
def _cell(
    pointer, m, length, pad, period, n,
    PART: tl.constexpr, AT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Return positions 2 m + AT of a complex row, its real or imaginary PART; zero outside and where masked."""
    t = wrapped(2 * m + AT, period, CIRCULAR)
    real = real_at(t, length, pad, HAS_PAD)
    if PAIRED:
        x0, x1, y0, y1 = get_cells(pointer, wrapped(m + AT // 2, period // 2, CIRCULAR), n)
        if PART == 0:
            x = x1 if AT % 2 == 1 else x0
        else:
            x = y1 if AT % 2 == 1 else y0
        return tl.where(real, x, 0.0)
    return tl.load(pointer + 2 * t + PART, mask=real, other=0.0)


@triton.jit
def _masked(real, x, y, z):
    return tl.where(real, x, 0.0), tl.where(real, y, 0.0), tl.where(real, z, 0.0)


@triton.jit
def _spread(g, taps, even, odd, STEP: tl.constexpr, K: tl.constexpr):
    """Add the share of g at AT = STEP - SHIFT to the gradients of positions 2 m and 2 m + 1."""
    if STEP < K:
        even += taps[K - 1 - STEP] * g
    if STEP >= 1:
        odd += taps[K - STEP] * g
    return even, odd


@triton.jit
def _tap_sums(
    row, own, m, stride, length, pad, period, g0, g1,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Return the K products of gradients at 2 m and 2 m + 1 with what the taps met there."""
    sums = ()
    for j in tl.static_range(K):
        # Positions are spelled out: assigned to a name they would no longer be known when compiling.
        x0 = value(row, m, stride, own[K + 1], length, pad, period, j + SHIFT + 1 - K, CIRCULAR, HAS_PAD, PAIRED)
        x1 = value(row, m, stride, own[K + 1], length, pad, period, j + SHIFT + 2 - K, CIRCULAR, HAS_PAD, PAIRED)
        sums = sums + (g0 * x0 + g1 * x1,)
    return sums


@triton.jit
def _through_conditioning(
    rows, source, taps, m, stride, length, pad, period, n, even, odd,
    PART: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    HAS_PAD: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Add the gradient of the conditioning sequence to even and odd; return them and the sums for Conv1d_t's taps.

    ``taps`` has the ``parameters`` of every side, one after another; ``source`` is the row the sides were made of.
    """
    sums = ()
    for side in tl.static_range(SIDES):
        row, own = rows + (side + 1) * 2 * n, taps[side * (K + 2) : (side + 1) * (K + 2)]
        for at in tl.static_range(K + 1):
            g = _cell(row, m, length, pad, period, n, PART, at - SHIFT, CIRCULAR, HAS_PAD, PAIRED)
            even, odd = _spread(g, own, even, odd, at, K)
        g0 = _cell(row, m, length, pad, period, n, PART, 0, False, HAS_PAD, PAIRED)
        g1 = _cell(row, m, length, pad, period, n, PART, 1, False, HAS_PAD, PAIRED)
        sums = sums + _tap_sums(
            source, own, m, stride, length, pad, period, g0, g1, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED
        )
    return even, odd, sums


@triton.jit
def _next(b, block, blocks):
    """Return the sample and the block that follow."""
    last = block + 1 == blocks
    return tl.where(last, b + 1, b), tl.where(last, 0, block + 1)


@triton.jit
def _store(partial, sums, COUNT: tl.constexpr):
    for j in tl.static_range(COUNT):
        tl.store(partial + j, tl.sum(sums[j]))


@launched
@triton.jit(do_not_specialize=["first", "steps"])
def streams_grad_kernel(
    p, dy, offset, weight, bias, spatial, grads, pad, dp, partial,
    first, D, batch, length, period, n, blocks,
    p_batch, p_channel, p_time, dy_batch, dy_channel, dy_time, dp_batch, dp_channel, steps,
    ROWS: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    HAS_PAD: tl.constexpr, PAIRED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write dp (B, 3 D, L) and the sums for taps, biases and offsets.

    grads (pairs, B, ROWS, n) complex: da, the gradients of the conditioning sequences, c. SIDES of them are of v (none
    where a context has them). partial (pairs, parts, 2, 3 (K + 1) + 3 + SIDES K): for v, s_1, s_2 the taps and the
    bias, then the three offsets, then the taps of Conv1d_t.
    """
    COUNT: tl.constexpr = 3 * (K + 1) + 3 + SIDES * K
    pair, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    zero = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(2):
        channel = first + 2 * pair + i
        d = tl.minimum(channel, D - 1)
        v_own, s_own = parameters(weight, bias, offset, d, K, True), parameters(weight, bias, offset, D + d, K, True)
        t_own = parameters(weight, bias, offset, 2 * D + d, K, True)
        cond_own = side_parameters(spatial, bias, offset, d, D, SIDES, K)
        sums = zeros(COUNT, BLOCK)
        b, block = (part * steps) // blocks, (part * steps) % blocks
        for _ in range(steps):
            sample = tl.minimum(b, batch - 1).to(tl.int64)
            here = tl.where((b < batch) & (channel < D), length, 0)  # past the last block nothing is real
            m = block * BLOCK + tl.arange(0, BLOCK)
            pads, rows = pad + sample * length, grads + (pair * batch + sample) * (ROWS * 2 * n)
            c_row = rows + (ROWS - 1) * 2 * n
            rows_of_p = p + sample * p_batch
            v_row, s_row = rows_of_p + d * p_channel, rows_of_p + (D + d) * p_channel
            t_row = rows_of_p + (2 * D + d) * p_channel
            g_row = dy + sample * dy_batch + d * dy_channel
            even, odd = real_at(2 * m, here, pads, HAS_PAD), real_at(2 * m + 1, here, pads, HAS_PAD)
            v_even, v_odd, s_even, s_odd, t_even, t_odd = zero, zero, zero, zero, zero, zero
            v0, v1, s0, s1, t0, t1 = zero, zero, zero, zero, zero, zero
            for at in tl.static_range(K + 1):
                da = _cell(rows, m, here, pads, period, n, i, at - SHIFT, CIRCULAR, HAS_PAD, PAIRED)
                c = _cell(c_row, m, here, pads, period, n, i, at - SHIFT, CIRCULAR, HAS_PAD, PAIRED)
                v = short(v_row, v_own, m, p_time, here, pads, period, at - SHIFT, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
                s = short(s_row, s_own, m, p_time, here, pads, period, at - SHIFT, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
                g = value(g_row, m, dy_time, 0.0, here, pads, period, at - SHIFT, CIRCULAR, HAS_PAD, PAIRED)
                dv, ds, dt = da * s, da * v, g * c
                v_even, v_odd = _spread(dv, v_own, v_even, v_odd, at, K)
                s_even, s_odd = _spread(ds, s_own, s_even, s_odd, at, K)
                t_even, t_odd = _spread(dt, t_own, t_even, t_odd, at, K)
                if at == SHIFT:  # the mask matters where a block's tail wraps around
                    v0, s0, t0 = (dv, ds, dt) if not CIRCULAR else _masked(even, dv, ds, dt)
                if at == SHIFT + 1:
                    v1, s1, t1 = (dv, ds, dt) if not CIRCULAR else _masked(odd, dv, ds, dt)
            v_even, v_odd, cond = _through_conditioning(
                rows, v_row, cond_own, m, p_time, here, pads, period, n, v_even, v_odd,
                i, SIDES, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED,
            )  # fmt: skip
            v_even, s_even, t_even = _masked(even, v_even, s_even, t_even)
            v_odd, s_odd, t_odd = _masked(odd, v_odd, s_odd, t_odd)
            more = (
                _tap_sums(v_row, v_own, m, p_time, here, pads, period, v0, v1, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
                + (v0 + v1,)
                + _tap_sums(s_row, s_own, m, p_time, here, pads, period, s0, s1, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
                + (s0 + s1,)
                + _tap_sums(t_row, t_own, m, p_time, here, pads, period, t0, t1, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED)
                + (t0 + t1, v_even + v_odd, s_even + s_odd, t_even + t_odd)
                + cond
            )
            sums = plus(sums, more, COUNT)
            target = dp + sample * dp_batch
            put_row(target + channel * dp_channel, m, here, v_even, v_odd)
            put_row(target + (D + channel) * dp_channel, m, here, s_even, s_odd)
            put_row(target + (2 * D + channel) * dp_channel, m, here, t_even, t_odd)
            b, block = _next(b, block, blocks)
        _store(partial + ((pair * tl.num_programs(1) + part) * 2 + i) * COUNT, sums, COUNT)


@launched
@triton.jit(do_not_specialize=["first", "steps"])
def context_grad_kernel(
    u, offset, bias, spatial, grads, pad, du, partial,
    first, D, batch, length, period, n, blocks, u_batch, u_channel, u_time, du_batch, du_channel, steps,
    ROWS: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    HAS_PAD: tl.constexpr, PAIRED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write du (B, D, M) and the sums for Conv1d_t's taps and the offset: partial (pairs, parts, 2, SIDES K + 1)."""
    COUNT: tl.constexpr = SIDES * K + 1
    pair, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    for i in tl.static_range(2):
        channel = first + 2 * pair + i
        d = tl.minimum(channel, D - 1)
        taps = side_parameters(spatial, bias, offset, d, D, SIDES, K)
        sums = zeros(COUNT, BLOCK)
        b, block = (part * steps) // blocks, (part * steps) % blocks
        for _ in range(steps):
            sample = tl.minimum(b, batch - 1).to(tl.int64)
            here = tl.where((b < batch) & (channel < D), length, 0)
            m = block * BLOCK + tl.arange(0, BLOCK)
            pads, rows = pad + sample * length, grads + (pair * batch + sample) * (ROWS * 2 * n)
            u_row = u + sample * u_batch + d * u_channel
            even, odd = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
            even, odd, cond = _through_conditioning(
                rows, u_row, taps, m, u_time, here, pads, period, n, even, odd,
                i, SIDES, K, SHIFT, CIRCULAR, HAS_PAD, PAIRED,
            )  # fmt: skip
            even = tl.where(real_at(2 * m, here, pads, HAS_PAD), even, 0.0)
            odd = tl.where(real_at(2 * m + 1, here, pads, HAS_PAD), odd, 0.0)
            sums = plus(sums, cond + (even + odd,), COUNT)
            put_row(du + sample * du_batch + channel * du_channel, m, here, even, odd)
            b, block = _next(b, block, blocks)
        _store(partial + ((pair * tl.num_programs(1) + part) * 2 + i) * COUNT, sums, COUNT)
