"""Short rows, backward: the gradients of h_f, of s_1 * v and of the conditioning sequence.

Two kernels: in one, what is alive at once does not fit into registers. ``streams/gradients.py`` goes on from here.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.dense.spectra import (
    back_through,
    bands_of,
    columns,
    conditioned,
    kernel_columns,
    load_statics,
    load_tables,
    plus_edge,
    shifts_of,
    sum_at_edge,
    synthesis,
    tap_total,
    through,
    weighted,
)
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.octets import in_eights
from orchid.ops.kernels.streams.parameters import channel_parameters, parameters
from orchid.ops.kernels.streams.tiles import (
    load_tile,
    operand,
    real_tokens,
    samples,
    short_tile,
    signals,
    signed,
    towards,
    within,
)


@triton.jit
def _put(target, x, factor, inside):
    """Store rows (ROWS, N) times a factor (ROWS,)."""
    tl.store(target, (x * factor[:, None]).to(target.dtype.element_ty), mask=inside)


@launched
@triton.jit(do_not_specialize=["first_d", "steps"])
def dense_grad_kernel(
    p, dy, offset, weight, bias, spatial, spectral, static, delta, tables, pad, grads, dstatic, spectra, edges,
    first_d, D, batch, length, period, scale, p_batch, p_channel, dy_batch, dy_channel, steps,
    KEPT: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write da and c of grads (channels, 2 + SIDES, B, L) from dy, and what ``dense_conditioning_grad_kernel`` needs.

    dstatic (tiles, channels, N) are the gradients of h0_f, summed over the samples of a tile, columns as in the tables.
    spectra (channels, B, H), float16, are those of h_f, real parts, of rows divided by a factor; edges (channels, 2, B)
    the Nyquist bin's, likewise, and the factor.
    """
    H: tl.constexpr = N // 2
    M: tl.constexpr = N // 8
    BLOCKS: tl.constexpr = H // BLOCK
    own, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = first_d + own
    p_batch, dy_batch, length = in_eights(p_batch), in_eights(dy_batch), in_eights(length)
    p_channel, dy_channel = in_eights(p_channel), in_eights(dy_channel)
    v_own, s_own, t_own, g_own = channel_parameters(weight, bias, offset, spatial, d, D, SIDES, K)
    matrices, taps = load_tables(tables, N, BLOCK), spectral + d * K
    total = tap_total(taps, K) if SIDES else 1.0
    bands = bands_of(taps, total, H, BLOCK, K) if SIDES else ()
    statics = load_statics(static, delta, d, own, N, BLOCK, KEPT)
    t = tl.arange(0, N)[None, :]
    for step in range(steps):
        b, here = samples(part * steps + step, batch, ROWS)
        pads, row, inside = pad + b * length, p + b * p_batch, here & (t < length)
        real = real_tokens(t, within(t, here, length, FULL), pads, HAS_PAD)
        gate = short_tile(
            row + (2 * D + d) * p_channel, t_own, t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        grad = load_tile(dy + b * dy_batch + d * dy_channel, t, 0.0, within(t, here, length, FULL), real, FULL)
        e, e_most = operand(gate * grad, real, FULL)
        made = signals(
            row + d * p_channel, row + (D + d) * p_channel, v_own, s_own, g_own, t, here, real, length, pads, period,
            ROWS, M, SIDES, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        a, a_most = made[0], made[1]
        sizes, edge, bound, h_edge, g_most = conditioned(
            made, statics, matrices, taps, total, scale, ROWS, H, BLOCK, K, SIDES
        )
        factor = a_most * e_most
        tile = dstatic + ((part * steps + step) * tl.num_programs(0) + own) * N
        c_res, c_ims, d_res, d_ims = (), (), (), ()
        for i in tl.static_range(BLOCKS):
            h, h_im = kernel_columns(
                sizes, edge, bound, g_most, statics, bands, taps, total, scale, i, H, BLOCK, K, SIDES
            )  # fmt: skip
            h_odd = tl.where(columns(0, BLOCK) == 0, h_edge[:, None], h) if i == 0 else h
            a_re, a_im = tl.dot(a, matrices[i]), tl.dot(a, matrices[BLOCKS + i])
            re, im = weighted(h * a_re - h_im * a_im, h_odd * a_im + h_im * a_re, i, BLOCK)
            c_res, c_ims = c_res + (re,), c_ims + (im,)
            e_re, e_im = tl.dot(e, matrices[i]), tl.dot(e, matrices[BLOCKS + i])
            re, im = weighted(h * e_re + h_im * e_im, h_odd * e_im - h_im * e_re, i, BLOCK)
            d_res, d_ims = d_res + (re,), d_ims + (im,)
            dh, dh_im = a_re * e_re + a_im * e_im, a_re * e_im - a_im * e_re
            if i == 0:  # two real bins, of half the weight
                first = columns(0, BLOCK) == 0
                dh, dh_im = tl.where(first, 0.5 * a_re * e_re, dh), tl.where(first, 0.5 * a_im * e_im, dh_im)
                if SIDES:
                    place = edges + (own * 2 * batch + b)
                    at_edge = tl.sum(tl.where(first, dh_im, 0.0), axis=1) * (2.0 / N)
                    tl.store(place, at_edge[:, None], mask=here)
                    tl.store(place + batch, factor[:, None], mask=here)
            dh *= 2.0 / N
            k = i * BLOCK + tl.arange(0, BLOCK)
            tl.store(tile + k, tl.sum(dh * factor[:, None], axis=0))
            tl.store(tile + H + k, tl.sum(dh_im * (factor * (2.0 / N))[:, None], axis=0))
            if SIDES:
                row_f = spectra + (own * batch + b) * H
                tl.store(row_f + columns(i, BLOCK), dh.to(tl.float16), mask=here)
        target = grads + (own * (2 + SIDES) * batch + b) * length + t
        c = synthesis(c_res, c_ims, matrices, BLOCKS)
        plane = batch.to(tl.int64) * length
        _put(target + (1 + SIDES) * plane, c, bound * a_most * (2.0 / N), inside)
        da = synthesis(d_res, d_ims, matrices, BLOCKS)
        _put(target, da, bound * e_most * (2.0 / N), inside)


@launched
@triton.jit(do_not_specialize=["first_d", "steps"])
def dense_conditioning_grad_kernel(
    p, offset, bias, spatial, spectral, tables, pad, spectra, edges, grads, partial,
    first_d, D, batch, length, period, scale, p_batch, p_channel, steps,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, FULL: tl.constexpr, HAS_PAD: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the conditioning sequence into grads (channels, 3, B, L), from those of h_f.

    partial (parts, channels, K) are the gradients of the spectral taps, summed over the samples of a program.
    """
    H: tl.constexpr = N // 2
    M: tl.constexpr = N // 8
    BLOCKS: tl.constexpr = H // BLOCK
    own, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = first_d + own
    p_batch, p_channel, length = in_eights(p_batch), in_eights(p_channel), in_eights(length)
    g_own = parameters(spatial, bias, offset, d, K, False)
    matrices, taps = load_tables(tables, N, BLOCK), spectral + d * K
    total = tap_total(taps, K)
    bands = bands_of(taps, total, H, BLOCK, K)
    t = tl.arange(0, N)[None, :]
    sums = ()
    for j in tl.static_range(K):
        sums = sums + (0.0 * j,)
    for step in range(steps):
        b, here = samples(part * steps + step, batch, ROWS)
        pads = pad + b * length
        real = real_tokens(t, within(t, here, length, FULL), pads, HAS_PAD)
        g = short_tile(
            p + b * p_batch + d * p_channel, g_own, t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        g, g_most = operand(g, real, FULL)
        place = edges + (own * 2 * batch + b)
        at_edge = tl.sum(tl.load(place, mask=here, other=0.0), axis=1)
        factor = tl.sum(tl.load(place + batch, mask=here, other=0.0), axis=1)
        edge, dm_edge = 0.0, tl.load(taps + K // 2).to(tl.float32) / total * at_edge
        dhs, sizes, res, ims = (), (), (), ()
        for i in tl.static_range(BLOCKS):
            dh = tl.load(spectra + (own * batch + b) * H + columns(i, BLOCK), mask=here, other=0.0)
            dm_edge += sum_at_edge(dh.to(tl.float32), taps, total, columns(i, BLOCK), True, H, K)
            dhs = dhs + (dh,)
            re, im = tl.dot(g, matrices[i]), tl.dot(g, matrices[BLOCKS + i])
            magnitude = tl.sqrt(re * re + im * im)
            if i == 0:
                first = columns(0, BLOCK) == 0
                magnitude = tl.where(first, tl.abs(re), magnitude)
                edge = tl.sum(tl.where(first, im, 0.0), axis=1)
            sizes, res, ims = sizes + (magnitude.to(tl.float16),), res + (re,), ims + (im,)
        more = ()
        for j in tl.static_range(K):
            shifts = shifts_of(j, H, BLOCK, K)
            products = at_edge * tl.abs(edge) if j == K // 2 else tl.zeros((ROWS,), tl.float32)
            for i in tl.static_range(BLOCKS):
                k = columns(i, BLOCK)
                met = through(sizes, shifts, i, BLOCKS) + tl.where(H - k + K // 2 == j, tl.abs(edge)[:, None], 0.0)
                given = tl.where(k - H + K // 2 == j, sizes[i].to(tl.float32) * at_edge[:, None], 0.0)
                products += tl.sum(dhs[i].to(tl.float32) * met + given, axis=1)
            more = more + (sums[j] + tl.sum(products * factor * g_most) * scale,)
        sums = more
        sign = signed(dm_edge, edge)
        d_res, d_ims = (), ()
        for i in tl.static_range(BLOCKS):
            dm = back_through(dhs, bands, i, BLOCKS)
            dm = plus_edge(dm, at_edge, taps, total, columns(i, BLOCK), False, H, K)
            re, im = res[i], ims[i]
            if i == 0:
                first = columns(0, BLOCK) == 0
                turn = towards(dm, tl.sqrt(re * re + tl.where(first, 0.0, im * im)))
                im = tl.where(first, sign[:, None], turn * im)
            else:
                turn = towards(dm, tl.sqrt(re * re + im * im))
                im = turn * im
            re = turn * re
            d_res, d_ims = d_res + (re.to(tl.float16),), d_ims + (im.to(tl.float16),)
        dg = synthesis(d_res, d_ims, matrices, BLOCKS)
        target = grads + ((own * 3 + 1) * batch + b) * length + t
        _put(target, dg, factor * (total * scale), here & (t < length))
    for j in tl.static_range(K):
        tl.store(partial + (part * tl.num_programs(0) + own) * K + j, sums[j])


@launched
@triton.jit(do_not_specialize=["channels", "tiles"])
def dense_static_grad_kernel(
    dstatic, tables, rows, channels, tiles, N: tl.constexpr, CHANNELS: tl.constexpr
):  # fmt: skip
    """Write the gradient of h0 in time, (channels, n), from what tiles of samples give to that of h0_f.

    The tables' float16 is TF32 as it stands; what is summed takes more than one term.
    """
    H: tl.constexpr = N // 2
    own, k = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)[:, None], tl.arange(0, H)
    t, there = tl.arange(0, N), own < channels
    total = tl.zeros((CHANNELS, N), tl.float32)
    for part in tl.static_range(2):
        given = tl.zeros((CHANNELS, H), tl.float32)
        for tile in range(tiles):
            place = (tile * channels + own) * N + part * H + k[None, :]
            given += tl.load(dstatic + place, mask=there, other=0.0)
        waves = tl.load(tables + (part * N + t[None, :]) * H + k[:, None]).to(tl.float32)
        total += tl.dot(given, waves, input_precision="tf32x3")
    tl.store(rows + own * N + t[None, :], total, mask=there)
