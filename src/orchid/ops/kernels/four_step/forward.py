"""Rows of 256 to 4,096, forward: everything between the projections in one kernel.

A program takes one channel and goes through samples, S at a time: taps are scalars, the matrices of the transform
(``four_step/transform.py``) are loaded once. Signals are divided by their largest value, the kernel by a bound on its
spectrum, before they are rounded to float16: nothing overflows.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.dense.spectra import tap_total
from orchid.ops.kernels.four_step.spectra import conditioned, in_time, scaled_signals
from orchid.ops.kernels.four_step.transform import again, load_stages, spectrum
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.octets import in_eights
from orchid.ops.kernels.streams.parameters import channel_parameters
from orchid.ops.kernels.streams.tiles import LINE, fetch, real_tokens, samples, short_tile, signals_in_time, within


@launched
@triton.jit(do_not_specialize=["first_d", "steps"])
def four_step_kernel(
    p, offset, weight, bias, spatial, spectral, static, most, tables, twiddles, pad, y,
    first_d, D, batch, length, period, scale, p_batch, p_channel, y_batch, y_channel, steps,
    SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * (h conv (s_1 * v)), (B, D, L)."""
    N: tl.constexpr = N1 * N2
    M: tl.constexpr = N // 8
    own = tl.program_id(0).to(tl.int64)
    d = first_d + own
    p_batch, y_batch, length = in_eights(p_batch), in_eights(y_batch), in_eights(length)
    p_channel, y_channel = in_eights(p_channel), in_eights(y_channel)
    v_own, s_own, t_own, g_own = channel_parameters(weight, bias, offset, spatial, d, D, SIDES, K)
    stages, taps = load_stages(tables, N1, N2, S), spectral + d * K
    total = tap_total(taps, K) if SIDES else 1.0
    static += own * (S * N)
    t = tl.arange(0, N)[None, :]
    lines = tl.minimum(tl.arange(0, N // LINE) * LINE, length - 1)[None, :]
    first = tl.program_id(1) * steps
    last = tl.minimum(first + steps, tl.cdiv(batch, S)) - 1
    for step in range(last + 1 - first):
        tile = first + step
        b, here = samples(tile, batch, S)
        pads, row = pad + b * length, p + b * p_batch
        fetch(row + (2 * D + d) * p_channel + lines)  # this tile's gate, which is loaded last
        coming = p + samples(tl.minimum(tile + 1, last), batch, S)[0] * p_batch + lines
        fetch(coming + d * p_channel)
        fetch(coming + (D + d) * p_channel)
        real = real_tokens(t, within(t, here, length, FULL), pads, HAS_PAD)
        made = signals_in_time(
            row + d * p_channel, row + (D + d) * p_channel, v_own, s_own, g_own, t, here, real, length, pads, period,
            S, M, SIDES, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        signals = scaled_signals(made, t, real, SIDES, N1, N2, S, FULL)
        a, a_most, a_edge, _, _ = signals[0]
        kernel, _ = conditioned(
            signals, stages, twiddles, tile, static, most + 2 * own, taps, total, scale, SIDES, K, N1, N2, S
        )
        h, h_im, h_edge, bound, spoiled = kernel
        re, im = spectrum(a, stages, again(twiddles, tile, 2), N1, N2, S)
        c = in_time(
            h * re - h_im * im, h * im + h_im * re, 0.5 * h_edge * a_edge, bound * a_most * (2.0 / N) + spoiled,
            t, stages, again(twiddles, tile, 3), N1, N2, S,
        )  # fmt: skip
        gate = short_tile(
            row + (2 * D + d) * p_channel, t_own, t, here, real, length, pads, period,
            S, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        out = gate * c
        if HAS_PAD:
            out = tl.where(real, out, 0.0)
        tl.store(y + b * y_batch + d * y_channel + t, out.to(y.dtype.element_ty), mask=here & (t < length))
