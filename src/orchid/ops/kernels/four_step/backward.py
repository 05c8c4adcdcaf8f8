"""Rows of 256 to 4,096, backward: the gradients of h_f, of s_1 * v and of the conditioning sequence.

``streams/gradients.py`` goes on from here.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.dense.spectra import tap_total
from orchid.ops.kernels.four_step.spectra import conditioned, in_time, neighbours, scaled, scaled_signals
from orchid.ops.kernels.four_step.transform import (
    again,
    bins,
    largest,
    load_stages,
    over_columns,
    over_rows,
    put_in_order,
    spectrum,
)
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.octets import in_eights
from orchid.ops.kernels.streams.parameters import channel_parameters
from orchid.ops.kernels.streams.tiles import (
    TINY,
    load_tile,
    real_tokens,
    samples,
    short_tile,
    signals_in_time,
    signed,
    towards,
    within,
)
from orchid.ops.kernels.sums import zeros


@triton.jit
def _put(
    target, inside, re, im, edge, factor, t, stages, twiddles,
    N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Store ``in_time``."""
    x = in_time(re, im, edge, factor, t, stages, twiddles, N1, N2, S)
    tl.store(target + t, x.to(target.dtype.element_ty), mask=inside)


@triton.jit
def _through_taps(
    dh, dh_im, dh_edge, met, met_im, edge, size, sums, mid, taps, total,
    SIDES: tl.constexpr, K: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Return the gradient of what Conv1d_f took, from conj(A) E: real and imaginary parts, the Nyquist bin's.

    Then the gradients of the taps so far: ``sums``, and ``mid`` (S,), what the Nyquist bin gives to the one in the
    middle. ``met`` and ``met_im`` are the ``neighbours`` of what was taken, ``edge`` is its Nyquist bin, all over
    ``size`` (S,); with one side there are no imaginary parts.
    """
    N: tl.constexpr = N1 * N2
    k, by_column = bins(N1, N2, S), over_columns(size, N2, S)
    dh, dh_edge = tl.where(k == 0, 0.5 * dh, dh) * (2.0 / N), dh_edge * (1.0 / N)
    back, back_im, more = neighbours(dh, dh_edge, K, N1, N2, S), (), ()
    if SIDES == 2:
        dh_im = dh_im * (2.0 / N)
        back_im = neighbours(dh_im, 0.0 * dh_edge, K, N1, N2, S)
    dx, dx_im, taken = tl.zeros(dh.shape, tl.float32), tl.zeros(dh.shape, tl.float32), tl.zeros(dh.shape, tl.float32)
    for j in tl.static_range(K):
        tap = tl.load(taps + j).to(tl.float32) / total
        dx += tap * back[K - 1 - j]
        products = dh * met[j]
        if SIDES == 2:
            dx_im += tap * back_im[K - 1 - j]
            products += dh_im * met_im[j]
        if j < K // 2:  # to the Nyquist bin
            at_edge = over_columns(dh_edge, N2, S) * met[K // 2]
            products += tl.where(k == N // 2 + (j - K // 2), at_edge, 0.0)
        if j > K // 2:  # from it
            taken += tl.where(k == N // 2 - (j - K // 2), tap * dh, 0.0)
        more = more + (sums[j] + tl.sum(products * by_column, axis=1),)
    dx_edge = tl.load(taps + K // 2).to(tl.float32) / total * dh_edge + over_rows(taken, N2, S)
    return dx, dx_im, dx_edge, more, mid + dh_edge * edge * size


@triton.jit
def _put_side(
    target, inside, re, im, edge, factor, t, stages, twiddles, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr
):  # fmt: skip
    """Store the sequence whose spectrum has these bins, times factor; they are divided by the largest first."""
    most = tl.maximum(largest(re, im, N2, S), tl.maximum(tl.abs(edge), TINY))
    share = over_columns(1.0 / most, N2, S)
    _put(target, inside, re * share, im * share, edge / most, factor * most, t, stages, twiddles, N1, N2, S)


@triton.jit
def _put_conditioning(
    target, plane, inside, dh, dh_im, dh_edge, parts, factor, sums, mid, taps, total, scale, t, tile, stages, twiddles,
    SIDES: tl.constexpr, K: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Store the gradient of every side's sequence, from conj(A) E times factor; return ``sums`` and ``mid``.

    ``parts`` as ``conditioned`` returns them. One side: that of |G| turns G. Two: of X = conj(key) query, that of the
    query is key dX, that of the key query conj(dX).
    """
    if SIDES == 1:
        g_re, g_im, g_edge, g_most, met = parts
        dm, _, dm_edge, sums, mid = _through_taps(
            dh, dh_im, dh_edge, met, (), tl.abs(g_edge), factor * g_most, sums, mid, taps, total, SIDES, K, N1, N2, S
        )
        dm_edge, turn = signed(dm_edge, g_edge), towards(dm, met[K // 2])
        _put(
            target, inside, turn * g_re, turn * g_im, dm_edge, factor * (total * scale),
            t, stages, again(twiddles, tile, 6), N1, N2, S,
        )  # fmt: skip
    else:
        k_re, k_im, k_edge, k_most, q_re, q_im, q_edge, q_most, x_most, met, met_im = parts
        re, im, edge, sums, mid = _through_taps(
            dh, dh_im, dh_edge, met, met_im, k_edge * q_edge / x_most, factor * (k_most * scale) * q_most * x_most,
            sums, mid, taps, total, SIDES, K, N1, N2, S,
        )  # fmt: skip
        factor = factor * (total * scale)
        _put_side(
            target, inside, q_re * re + q_im * im, q_im * re - q_re * im, q_edge * edge,
            factor * (q_most * scale), t, stages, again(twiddles, tile, 6), N1, N2, S,
        )  # fmt: skip
        _put_side(
            target + plane, inside, k_re * re - k_im * im, k_re * im + k_im * re, k_edge * edge,
            factor * (k_most * scale), t, stages, again(twiddles, tile, 7), N1, N2, S,
        )  # fmt: skip
    return sums, mid


@launched
@triton.jit(do_not_specialize=["first_d", "batch", "steps"])
def four_step_grad_kernel(
    p, dy, offset, weight, bias, spatial, spectral, static, most, tables, twiddles, pad, grads, dstatic, edges, partial,
    first_d, D, batch, length, period, scale, p_batch, p_channel, dy_batch, dy_channel, steps,
    SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Write grads (channels, 2 + SIDES, B, L): da, the gradient of the conditioning sequence, c; and a program's sums.

    dstatic (parts, channels, 2, N1 S N2 / 2) are conj(A) E summed over samples, ``in_order``, edges (parts, channels)
    the Nyquist bin's; partial (parts, channels, K) the gradients of the spectral taps.
    """
    N: tl.constexpr = N1 * N2
    M: tl.constexpr = N // 8
    COLUMNS: tl.constexpr = S * N2 // 2
    own, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = first_d + own
    p_batch, dy_batch, length = in_eights(p_batch), in_eights(dy_batch), in_eights(length)
    p_channel, dy_channel = in_eights(p_channel), in_eights(dy_channel)
    v_own, s_own, t_own, g_own = channel_parameters(weight, bias, offset, spatial, d, D, SIDES, K)
    stages, taps = load_stages(tables, N1, N2, S), spectral + d * K
    total = tap_total(taps, K) if SIDES else 1.0
    static += own * (S * N)
    t, plane = tl.arange(0, N)[None, :], batch.to(tl.int64) * length
    dh0, dh0_im = tl.zeros((N1, COLUMNS), tl.float32), tl.zeros((N1, COLUMNS), tl.float32)
    dh0_edge, sums, mid = tl.zeros((S,), tl.float32), zeros(K, N1), tl.zeros((S,), tl.float32)
    first = part * steps
    for step in range(tl.minimum(steps, tl.cdiv(batch, S) - first)):
        tile = first + step
        b, here = samples(tile, batch, S)
        pads, row, inside = pad + b * length, p + b * p_batch, here & (t < length)
        real = real_tokens(t, within(t, here, length, FULL), pads, HAS_PAD)
        made = signals_in_time(
            row + d * p_channel, row + (D + d) * p_channel, v_own, s_own, g_own, t, here, real, length, pads, period,
            S, M, SIDES, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        signals = scaled_signals(made, t, real, SIDES, N1, N2, S, FULL)
        a, a_most, a_edge, _, _ = signals[0]
        kernel, parts = conditioned(
            signals, stages, twiddles, tile, static, most + 2 * own, taps, total, scale, SIDES, K, N1, N2, S
        )
        h, h_im, h_edge, bound, spoiled = kernel
        target = grads + (own * (2 + SIDES) * batch + b) * length
        a_re, a_im = spectrum(a, stages, again(twiddles, tile, 2), N1, N2, S)
        _put(
            target + (1 + SIDES) * plane, inside, h * a_re - h_im * a_im, h * a_im + h_im * a_re,
            0.5 * h_edge * a_edge, bound * a_most * (2.0 / N) + spoiled, t,
            stages, again(twiddles, tile, 3), N1, N2, S,
        )  # fmt: skip
        gate = short_tile(
            row + (2 * D + d) * p_channel, t_own, t, here, real, length, pads, period,
            S, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        grad = load_tile(dy + b * dy_batch + d * dy_channel, t, 0.0, within(t, here, length, FULL), real, FULL)
        e, e_most, e_edge, _, e_spoiled = scaled(gate * grad, t, real, N1, N2, S, FULL)
        spoiled += e_spoiled
        e_re, e_im = spectrum(e, stages, again(twiddles, tile, 4), N1, N2, S)
        _put(
            target, inside, h * e_re + h_im * e_im, h * e_im - h_im * e_re,
            0.5 * h_edge * e_edge, bound * e_most * (2.0 / N) + spoiled, t,
            stages, again(twiddles, tile, 5), N1, N2, S,
        )  # fmt: skip
        factor = tl.where(tile * S + tl.arange(0, S) < batch, a_most * e_most + spoiled, 0.0)
        dh, dh_edge, by_column = a_re * e_re + a_im * e_im, a_edge * e_edge, over_columns(factor, N2, S)
        dh_im = a_re * e_im - a_im * e_re
        dh0, dh0_im = dh0 + by_column * dh, dh0_im + by_column * dh_im
        dh0_edge += factor * dh_edge
        if SIDES:
            sums, mid = _put_conditioning(
                target + plane, plane, inside, dh, dh_im, dh_edge, parts, factor, sums, mid, taps, total, scale,
                t, tile, stages, twiddles, SIDES, K, N1, N2, S,
            )  # fmt: skip
    place = part * tl.num_programs(0) + own
    put_in_order(dstatic + place * (S * N), dh0, N1, COLUMNS)
    put_in_order(dstatic + place * (S * N) + N1 * COLUMNS, dh0_im, N1, COLUMNS)
    tl.store(edges + place, tl.sum(dh0_edge))
    if SIDES:
        for j in tl.static_range(K):
            tl.store(partial + place * K + j, (tl.sum(sums[j]) + (tl.sum(mid) if j == K // 2 else 0.0)) * scale)
