"""Short rows (n = 64, 128), forward: everything between the projections in one kernel, the DFT on tensor cores.

A program takes one channel and goes through tiles of ROWS samples (``streams/tiles.py``): taps are scalars then, the
static kernel is one vector, and the transforms are matrix products with tables (``dense/spectra.py``).
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.dense.spectra import (
    bands_of,
    columns,
    conditioned,
    kernel_columns,
    load_statics,
    load_tables,
    synthesis,
    tap_total,
    weighted,
)
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.octets import in_eights
from orchid.ops.kernels.streams.parameters import channel_parameters
from orchid.ops.kernels.streams.tiles import real_tokens, samples, short_tile, signals, within


@launched
@triton.jit(do_not_specialize=["steps"])
def dense_kernel(
    p, offset, weight, bias, spatial, spectral, static, delta, tables, pad, y,
    D, batch, length, period, scale, p_batch, p_channel, y_batch, y_channel, steps,
    KEPT: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * (h conv (s_1 * v)), (B, D, L)."""
    H: tl.constexpr = N // 2
    M: tl.constexpr = N // 8
    BLOCKS: tl.constexpr = H // BLOCK
    d = tl.program_id(0).to(tl.int64)
    p_batch, y_batch, length = in_eights(p_batch), in_eights(y_batch), in_eights(length)
    p_channel, y_channel = in_eights(p_channel), in_eights(y_channel)
    v_own, s_own, t_own, g_own = channel_parameters(weight, bias, offset, spatial, d, D, SIDES, K)
    matrices, taps = load_tables(tables, N, BLOCK), spectral + d * K
    total = tap_total(taps, K) if SIDES else 1.0
    bands = bands_of(taps, total, H, BLOCK, K) if SIDES else ()
    statics = load_statics(static, delta, d, d, N, BLOCK, KEPT)
    t = tl.arange(0, N)[None, :]
    for step in range(steps):
        b, here = samples(tl.program_id(1) * steps + step, batch, ROWS)
        pads, row = pad + b * length, p + b * p_batch
        real = real_tokens(t, within(t, here, length, FULL), pads, HAS_PAD)
        made = signals(
            row + d * p_channel, row + (D + d) * p_channel, v_own, s_own, g_own, t, here, real, length, pads, period,
            ROWS, M, SIDES, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        a, a_most = made[0], made[1]
        sizes, edge, bound, h_edge, g_most = conditioned(
            made, statics, matrices, taps, total, scale, ROWS, H, BLOCK, K, SIDES
        )
        c_res, c_ims = (), ()
        for i in tl.static_range(BLOCKS):
            h, h_im = kernel_columns(
                sizes, edge, bound, g_most, statics, bands, taps, total, scale, i, H, BLOCK, K, SIDES
            )  # fmt: skip
            a_re, a_im = tl.dot(a, matrices[i]), tl.dot(a, matrices[BLOCKS + i])
            h_odd = tl.where(columns(0, BLOCK) == 0, h_edge[:, None], h) if i == 0 else h
            re, im = weighted(h * a_re - h_im * a_im, h_odd * a_im + h_im * a_re, i, BLOCK)
            c_res, c_ims = c_res + (re,), c_ims + (im,)
        c = synthesis(c_res, c_ims, matrices, BLOCKS).to(tl.float16)
        gate = short_tile(
            row + (2 * D + d) * p_channel, t_own, t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        out = gate * c.to(tl.float32) * (bound * a_most * (2.0 / N))[:, None]
        if HAS_PAD:
            out = tl.where(real, out, 0.0)
        tl.store(y + b * y_batch + d * y_channel + t, out.to(y.dtype.element_ty), mask=here & (t < length))
