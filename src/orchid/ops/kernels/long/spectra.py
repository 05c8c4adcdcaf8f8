"""Long rows in frequency, forward: rows of bins in registers (``long/transform.py``), one row k1 at a time.

A program takes one channel and goes through rows of all samples. Fields are (channels, B, FIELDS, R / 2, 2, Q): a, the
conditioning sequence, others. What a row becomes is written over it.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.dense.spectra import static_bins
from orchid.ops.kernels.four_step.transform import in_order, put_in_order
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.long.neighbours import in_place, met, put_slots
from orchid.ops.kernels.long.transform import load_row, load_row_stages, put_row, row_operand, row_spectrum


@triton.jit
def _put_static(
    static, delta, out, d, own, r, place, k2, R: tl.constexpr, Q: tl.constexpr, KEPT: tl.constexpr
):  # fmt: skip
    """Write places (1, PLACES) of rows r (ROWS, 1) of a channel's h0_f; k2 are the bins there."""
    N: tl.constexpr = R * Q
    k = r + R * k2
    beyond = k > N // 2
    k = tl.where(beyond, N - k, k)
    re, im, _ = static_bins(static, delta, d, own, k, N, KEPT)
    im = tl.where(2 * k == N, 0.0, tl.where(beyond, -im, im))
    row = out + (own * (R // 2 + 1) + r) * (2 * Q) + place
    tl.store(row, re)
    tl.store(row + Q, im)


@launched
@triton.jit(do_not_specialize=["first_d"])
def long_static_kernel(
    static, delta, out, first_d,
    KEPT: tl.constexpr, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Write h0_f, or T h0, of channels from first_d on as (channels, R / 2 + 1, 2, Q), ``in_order``.

    A program takes PLACES of all rows: reads run along k1, which is the first axis because the compiler, which does not
    see that they are contiguous, then lets threads run along it; writes run along the places.
    """
    Q: tl.constexpr = N1 * N2
    own = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * PLACES + tl.arange(0, PLACES)[None, :]
    k2, r = in_place(place, N1), tl.arange(0, R // 2)[:, None]
    _put_static(static, delta, out, first_d + own, own, r, place, k2, R, Q, KEPT)
    last = tl.arange(0, 1)[:, None] + R // 2
    _put_static(static, delta, out, first_d + own, own, last, place, k2, R, Q, KEPT)


@launched
@triton.jit(do_not_specialize=["first_d", "steps"])
def long_bins_kernel(
    fields, scales, tables, twiddles, half, delta, out, out_scales, first_d, steps,
    R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the same of a static kernel whose columns are transformed: fields (channels, R / 2, 2, Q).

    In float16, over the largest number of a row, which is kept in out_scales (channels, R / 2 + 1).
    """
    Q: tl.constexpr = N1 * N2
    own = tl.program_id(0).to(tl.int64)
    stages, tap = load_row_stages(tables, R, N1, N2), tl.load(delta + first_d + own).to(tl.float32)
    first = tl.program_id(1) * steps
    for r in range(first, tl.minimum(first + steps, R // 2 + 1)):
        re, im, most = load_row(fields + own * (R * Q), scales + own * (Q // TILE), half, r, R, N1, N2, TILE)
        re, im = row_spectrum(re, im, stages, twiddles, N1, N2)
        place = own * (R // 2 + 1) + r
        re, im, most = row_operand(re * most + tap, im * most)
        put_in_order(out + place * (2 * Q), re, N1, N2)
        put_in_order(out + place * (2 * Q) + Q, im, N1, N2)
        tl.store(out_scales + place, most)


@launched
@triton.jit(do_not_specialize=["batch", "steps"])
def long_sizes_kernel(
    fields, scales, tables, twiddles, half, slots, slot_scales, batch, scale, steps,
    FIELDS: tl.constexpr, K: tl.constexpr, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write |G|, times ``scale``, of the second of the fields, into slots (channels, B, R / 2 + 1 + 2 (K // 2), Q)."""
    Q: tl.constexpr = N1 * N2
    ROWS: tl.constexpr = R // 2 + 1
    SLOTS: tl.constexpr = ROWS + 2 * (K // 2)
    own = tl.program_id(0).to(tl.int64)
    stages = load_row_stages(tables, R, N1, N2)
    first = tl.program_id(1) * steps
    for step in range(tl.minimum(steps, batch * ROWS - first)):
        place, r = own * batch + (first + step) // ROWS, (first + step) % ROWS
        g = place * FIELDS + 1
        re, im, most = load_row(fields + g * (R * Q), scales + g * (Q // TILE), half, r, R, N1, N2, TILE)
        re, im = row_spectrum(re, im, stages, twiddles, N1, N2)
        sizes = tl.sqrt(re * re + im * im)
        put_slots(slots + place * (SLOTS * Q), slot_scales + place * SLOTS, r, sizes, most * scale, K, R, N1, N2)


@triton.jit
def kernel_row(
    static, static_scales, slots, slot_scales, taps, r,
    SIDES: tl.constexpr, K: tl.constexpr, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr,
):  # fmt: skip
    """Return row r of a channel's h_f, real and imaginary parts (N1, N2)."""
    static += r * (2 * N1 * N2)
    most = tl.load(static_scales + r)
    h, h_im = in_order(static, N1, N2).to(tl.float32) * most, in_order(static + N1 * N2, N1, N2).to(tl.float32) * most
    if SIDES:
        for j in tl.static_range(K):
            x, scale = met(slots, slot_scales, r, j, K, R, N1, N2, False)
            h += (tl.load(taps + j).to(tl.float32) * scale) * x
    return h, h_im


@launched
@triton.jit(do_not_specialize=["first_d", "batch", "steps"])
def long_mix_kernel(
    fields, scales, tables, twiddles, half, static, static_scales, slots, slot_scales, spectral, row_scales,
    first_d, batch, steps,
    FIELDS: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr,
    R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write h_f A, its rows transformed back, over the field of a; row_scales (channels, B, FIELDS, R / 2 + 1)."""
    Q: tl.constexpr = N1 * N2
    ROWS: tl.constexpr = R // 2 + 1
    SLOTS: tl.constexpr = ROWS + 2 * (K // 2)
    own = tl.program_id(0).to(tl.int64)
    stages, taps = load_row_stages(tables, R, N1, N2), spectral + (first_d + own) * K
    static, static_scales = static + own * (ROWS * 2 * Q), static_scales + own * ROWS
    first = tl.program_id(1) * steps
    for step in range(tl.minimum(steps, batch * ROWS - first)):
        place, r = own * batch + (first + step) // ROWS, (first + step) % ROWS
        a = place * FIELDS
        re, im, most = load_row(fields + a * (R * Q), scales + a * (Q // TILE), half, r, R, N1, N2, TILE)
        re, im = row_spectrum(re, im, stages, twiddles, N1, N2)
        h, h_im = kernel_row(
            static, static_scales, slots + place * (SLOTS * Q), slot_scales + place * SLOTS, taps, r,
            SIDES, K, R, N1, N2,
        )  # fmt: skip
        put_row(
            fields + a * (R * Q), row_scales + a * ROWS, half, r,
            row_operand(h * re - h_im * im, h * im + h_im * re), most, stages, twiddles, R, N1, N2,
        )  # fmt: skip
