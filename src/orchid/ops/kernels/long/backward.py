"""Long rows in frequency, backward: the gradients of h_f, of a = s_1 * v and of the conditioning sequence.

``long/spectra.py`` says what programs, fields and slots are. Fields here: a, the conditioning sequence, dc = s_2 * dy;
then da, the gradient of the conditioning sequence, c. ``streams/gradients.py`` goes on from their rows in time.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.four_step.transform import again
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.long.neighbours import met, put_slots
from orchid.ops.kernels.long.spectra import kernel_row
from orchid.ops.kernels.long.transform import load_row, load_row_stages, put_row, row_operand, row_spectrum
from orchid.ops.kernels.streams.tiles import towards
from orchid.ops.kernels.sums import zeros


@launched
@triton.jit(do_not_specialize=["first_d", "steps"])
def long_mix_grad_kernel(
    fields, scales, tables, twiddles, half, static, static_scales, slots, slot_scales, spectral, row_scales,
    dslots, dslot_scales, dstatic, dstatic_scales, partial, first_d, batch, steps,
    SIDES: tl.constexpr, K: tl.constexpr, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write da and c, rows transformed back, over the fields of a and dc, and what samples give to h0_f and its taps.

    dslots are Re(conj(A) E), with SIDES. dstatic (channels, R / 2, 2, Q) is the sum of conj(A) E over samples, rows
    transformed back; partial (channels, R / 2 + 1, K) what rows give to the gradients of the taps.
    """
    Q: tl.constexpr = N1 * N2
    FIELDS: tl.constexpr = 2 + SIDES
    ROWS: tl.constexpr = R // 2 + 1
    SLOTS: tl.constexpr = ROWS + 2 * (K // 2)
    own = tl.program_id(0).to(tl.int64)
    stages, taps = load_row_stages(tables, R, N1, N2), spectral + (first_d + own) * K
    static, static_scales = static + own * (ROWS * 2 * Q), static_scales + own * ROWS
    first = tl.program_id(1) * steps
    for step in range(tl.minimum(steps, ROWS - first)):
        r = first + step
        dh0, dh0_im = tl.zeros((N1, N2), tl.float32), tl.zeros((N1, N2), tl.float32)
        sums = zeros(K, N1)
        for b in range(batch):
            place = own * batch + b
            a, e = place * FIELDS, place * FIELDS + 1 + SIDES
            these, these_scales = slots + place * (SLOTS * Q), slot_scales + place * SLOTS
            re, im, a_most = load_row(fields + a * (R * Q), scales + a * (Q // TILE), half, r, R, N1, N2, TILE)
            a_re, a_im = row_spectrum(re, im, stages, again(twiddles, r, 0), N1, N2)
            re, im, e_most = load_row(fields + e * (R * Q), scales + e * (Q // TILE), half, r, R, N1, N2, TILE)
            e_re, e_im = row_spectrum(re, im, stages, again(twiddles, r, 1), N1, N2)
            dh, factor = a_re * e_re + a_im * e_im, a_most * e_most
            dh0, dh0_im = dh0 + factor * dh, dh0_im + factor * (a_re * e_im - a_im * e_re)
            if SIDES:
                put_slots(dslots + place * (SLOTS * Q), dslot_scales + place * SLOTS, r, dh, factor, K, R, N1, N2)
                more = ()
                for j in tl.static_range(K):
                    x, scale = met(these, these_scales, r, j, K, R, N1, N2, False)
                    more = more + (sums[j] + tl.sum(dh * x * scale, axis=1) * factor,)
                sums = more
            # operands before transforms: registers are few
            h, h_im = kernel_row(static, static_scales, these, these_scales, taps, r, SIDES, K, R, N1, N2)
            da = row_operand(h * e_re + h_im * e_im, h * e_im - h_im * e_re)
            c = row_operand(h * a_re - h_im * a_im, h * a_im + h_im * a_re)
            put_row(
                fields + a * (R * Q), row_scales + a * ROWS, half, r, da, e_most,
                stages, again(twiddles, r, 2), R, N1, N2,
            )  # fmt: skip
            put_row(
                fields + e * (R * Q), row_scales + e * ROWS, half, r, c, a_most,
                stages, again(twiddles, r, 3), R, N1, N2,
            )  # fmt: skip
        put_row(
            dstatic + own * (R * Q), dstatic_scales + own * ROWS, half, r, row_operand(dh0, dh0_im), 1.0,
            stages, again(twiddles, r, 4), R, N1, N2,
        )  # fmt: skip
        if SIDES:
            weight = tl.where((r > 0) & (r < R // 2), 2.0, 1.0) / (R * Q)  # rows between stand for two
            for j in tl.static_range(K):
                tl.store(partial + (own * ROWS + r) * K + j, tl.sum(sums[j]) * weight)


@launched
@triton.jit(do_not_specialize=["first_d", "batch", "steps"])
def long_conditioning_grad_kernel(
    fields, scales, tables, twiddles, half, dslots, dslot_scales, spectral, row_scales, first_d, batch, scale, steps,
    K: tl.constexpr, R: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the conditioning sequence, rows transformed back, over the field of the sequence."""
    Q: tl.constexpr = N1 * N2
    ROWS: tl.constexpr = R // 2 + 1
    SLOTS: tl.constexpr = ROWS + 2 * (K // 2)
    own = tl.program_id(0).to(tl.int64)
    stages, taps = load_row_stages(tables, R, N1, N2), spectral + (first_d + own) * K
    first = tl.program_id(1) * steps
    for step in range(tl.minimum(steps, batch * ROWS - first)):
        place, r = own * batch + (first + step) // ROWS, (first + step) % ROWS
        g = place * 3 + 1
        re, im, _ = load_row(fields + g * (R * Q), scales + g * (Q // TILE), half, r, R, N1, N2, TILE)
        re, im = row_spectrum(re, im, stages, twiddles, N1, N2)
        dm = tl.zeros((N1, N2), tl.float32)
        these, these_scales = dslots + place * (SLOTS * Q), dslot_scales + place * SLOTS
        for j in tl.static_range(K):
            x, size = met(these, these_scales, r, j, K, R, N1, N2, True)
            dm += (tl.load(taps + K - 1 - j).to(tl.float32) * size) * x
        turn = towards(dm, tl.sqrt(re * re + im * im))
        put_row(
            fields + g * (R * Q), row_scales + g * ROWS, half, r, row_operand(turn * re, turn * im), scale,
            stages, twiddles, R, N1, N2,
        )  # fmt: skip
