"""``signals_kernel`` and ``gate_kernel`` in octets: before and after the transforms, where rows are whole octets.

A program takes two neighbouring channels, the real and the imaginary part of complex rows, and a block of their octets,
of all samples.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.octets import (
    around,
    both_octets,
    convolved,
    eight,
    in_eights,
    neighbours,
    octet,
    put_both_octets,
    put_octet,
    real_around,
    times,
    with_offset,
)
from orchid.ops.kernels.streams.parameters import parameters


@triton.jit
def _stream(
    p, b, d, p_batch, p_channel, own, m, before, after, inside, is_before, is_after, real,
    K: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Load what eight outputs of a short convolution meet."""
    row = p + b * p_batch + d * p_channel
    x = around(row, m, before, after, inside, is_before, is_after, K - 1 - SHIFT, SHIFT, BLOCK)
    return with_offset(x, own[K + 1], real, 8 + K - 1)


@triton.jit
def _where_there(real, there):
    out = ()
    for i in tl.static_range(8):
        out = out + (real[i] & there,)
    return out


@launched
@triton.jit(do_not_specialize=["first"])
def octet_signals_kernel(
    p, dy, offset, weight, bias, spatial, pad, out,
    first, D, batch, octets, period, n_octets, p_batch, p_channel, dy_batch, dy_channel,
    SIDES: tl.constexpr, GRAD: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    HAS_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write what ``signals_kernel`` does, conditioned on v: out (pairs, B, 1 + SIDES + GRAD, n) complex."""
    ROWS: tl.constexpr = 1 + SIDES + GRAD
    BACK: tl.constexpr = K - 1 - SHIFT
    pair = tl.program_id(1).to(tl.int64)
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    within = item < batch * n_octets
    b, m = (item // n_octets).to(tl.int64), item % n_octets
    inside = within & (m < octets)
    p_batch, p_channel = in_eights(p_batch), in_eights(p_channel)
    dy_batch, dy_channel = in_eights(dy_batch), in_eights(dy_channel)
    before, after, is_before, is_after = neighbours(m, octets, period, inside, CIRCULAR)
    pads = pad + b * (octets * 8)
    real = real_around(pads, m, before, after, inside, is_before, is_after, BACK, SHIFT, HAS_PAD, BLOCK)
    here = real[BACK : BACK + 8]
    target = out + (pair * batch + b) * (ROWS * n_octets * 16)
    d0 = first + 2 * pair
    d1, second = tl.minimum(d0 + 1, D - 1), d0 + 1 < D
    here1 = _where_there(here, second)

    own0, own1 = parameters(weight, bias, offset, d0, K, True), parameters(weight, bias, offset, d1, K, True)
    v0 = _stream(
        p, b, d0, p_batch, p_channel, own0, m, before, after, inside, is_before, is_after, real, K, SHIFT, BLOCK
    )  # fmt: skip
    v1 = _stream(
        p, b, d1, p_batch, p_channel, own1, m, before, after, inside, is_before, is_after, real, K, SHIFT, BLOCK
    )  # fmt: skip
    v0_short, v1_short = convolved(v0, own0, 8, K), convolved(v1, own1, 8, K)
    for side in tl.static_range(SIDES):
        own0 = parameters(spatial + side * D * K, bias, offset, d0, K, False)
        own1 = parameters(spatial + side * D * K, bias, offset, d1, K, False)
        g0, g1 = (
            with_offset(convolved(v0, own0, 8, K), 0.0, here, 8),
            with_offset(convolved(v1, own1, 8, K), 0.0, here1, 8),
        )
        put_both_octets(target + (1 + side) * (n_octets * 16), m, within, g0, g1, BLOCK)
    own0 = parameters(weight, bias, offset, D + d0, K, True)
    own1 = parameters(weight, bias, offset, D + d1, K, True)
    s0 = _stream(
        p, b, D + d0, p_batch, p_channel, own0, m, before, after, inside, is_before, is_after, real, K, SHIFT, BLOCK
    )  # fmt: skip
    s1 = _stream(
        p, b, D + d1, p_batch, p_channel, own1, m, before, after, inside, is_before, is_after, real, K, SHIFT, BLOCK
    )  # fmt: skip
    a0 = times(v0_short, convolved(s0, own0, 8, K), here, 8)
    a1 = times(v1_short, convolved(s1, own1, 8, K), here1, 8)
    put_both_octets(target, m, within, a0, a1, BLOCK)
    if GRAD:
        own0 = parameters(weight, bias, offset, 2 * D + d0, K, True)
        own1 = parameters(weight, bias, offset, 2 * D + d1, K, True)
        s0 = _stream(
            p, b, 2 * D + d0, p_batch, p_channel, own0, m, before, after, inside, is_before, is_after, real,
            K, SHIFT, BLOCK,
        )  # fmt: skip
        s1 = _stream(
            p, b, 2 * D + d1, p_batch, p_channel, own1, m, before, after, inside, is_before, is_after, real,
            K, SHIFT, BLOCK,
        )  # fmt: skip
        grad0, grad1 = dy + b * dy_batch + d0 * dy_channel, dy + b * dy_batch + d1 * dy_channel
        c0 = times(convolved(s0, own0, 8, K), octet(grad0, m, inside, BLOCK), here, 8)
        c1 = times(convolved(s1, own1, 8, K), octet(grad1, m, inside, BLOCK), here1, 8)
        put_both_octets(target + (1 + SIDES) * (n_octets * 16), m, within, c0, c1, BLOCK)


@launched
@triton.jit(do_not_specialize=["first"])
def octet_gate_kernel(
    p, offset, weight, bias, c, pad, y,
    first, D, batch, octets, period, n_octets, p_batch, p_channel, y_batch, y_channel,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * c (B, D, L), zero where masked; c (pairs, B, n) complex."""
    BACK: tl.constexpr = K - 1 - SHIFT
    pair = tl.program_id(1).to(tl.int64)
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = item < batch * octets
    b, m = (item // octets).to(tl.int64), item % octets
    p_batch, p_channel = in_eights(p_batch), in_eights(p_channel)
    y_batch, y_channel = in_eights(y_batch), in_eights(y_channel)
    before, after, is_before, is_after = neighbours(m, octets, period, inside, CIRCULAR)
    pads = pad + b * (octets * 8)
    real = real_around(pads, m, before, after, inside, is_before, is_after, BACK, SHIFT, HAS_PAD, BLOCK)
    here = real[BACK : BACK + 8]
    both = both_octets(c + (pair * batch + b) * (n_octets * 16), m, inside, BLOCK)
    for i in tl.static_range(2):
        d = first + 2 * pair + i
        at = 2 * D + tl.minimum(d, D - 1)
        own = parameters(weight, bias, offset, at, K, True)
        s = _stream(
            p, b, at, p_batch, p_channel, own, m, before, after, inside, is_before, is_after, real, K, SHIFT, BLOCK
        )  # fmt: skip
        values = times(convolved(s, own, 8, K), eight(both[i]), here, 8)
        put_octet(y + b * y_batch + d * y_channel, m, inside & (d < D), values, BLOCK)
