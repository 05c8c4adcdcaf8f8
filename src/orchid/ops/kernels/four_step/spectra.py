"""What the kernels of rows of 256 to 8,192 share: signals as operands, the kernel's spectrum, rows back in time."""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.four_step.transform import (
    again,
    as_rows,
    bins,
    in_order,
    largest,
    moved,
    over_columns,
    over_rows,
    series,
    side_by_side,
    spectrum,
)
from orchid.ops.kernels.streams.tiles import TINY

# A row back in time is at most n sqrt(n) / 2 times as large as its kernel's bins, 370,728 for the longest rows: an
# eighth of that is below float16's largest number.
HEADROOM = tl.constexpr(8.0)


@triton.jit
def alternating(t):
    """Return (-1)^t."""
    return 1.0 - 2.0 * (t % 2).to(tl.float32)


@triton.jit
def _two(most, edge, other_most, other_edge):
    return tl.maximum(most, other_most), edge + other_edge


@triton.jit
def _five(most, edge, g_most, g_edge, g_total, other_most, other_edge, other_g_most, other_g_edge, other_g_total):
    most, edge = _two(most, edge, other_most, other_edge)
    g_most, g_edge = _two(g_most, g_edge, other_g_most, other_g_edge)
    return most, edge, g_most, g_edge, g_total + other_g_total


@triton.jit
def _operand(x, most, edge, total, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return what ``scaled`` does, from the sums of rows; total is one that shows whether a row is finite."""
    spoiled = total - total
    if S > 1:
        finite = spoiled == 0.0
        x = tl.where(finite[:, None], x, 0.0)
        most, edge, total = tl.where(finite, most, 0.0), tl.where(finite, edge, 0.0), tl.where(finite, total, 0.0)
    most = tl.maximum(most, TINY)
    share = 1.0 / most
    return side_by_side(x * share[:, None], N1, N2, S).to(tl.float16), most, edge * share, total * share, spoiled


@triton.jit
def scaled(x, t, real, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr, FULL: tl.constexpr):
    """Return rows (S, n), divided by their largest values, as a tile (N1, S N2) of float16, and four numbers (S,).

    The largest values; of the divided rows the Nyquist bins and a number without meaning; last, zero, or NaN for a row
    that is not finite. Beside another row such a one is zeros, for 0 times NaN is not: what comes of it is to be
    spoiled by that number.
    """
    if not FULL:
        x = tl.where(real, x, 0.0)
    most, edge = tl.reduce((tl.abs(x), x * alternating(t)), 1, _two)
    return _operand(x, most, edge, edge, N1, N2, S)


@triton.jit
def scaled_signals(
    made, t, real, SIDES: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr, FULL: tl.constexpr
):  # fmt: skip
    """Return all of ``signals_in_time`` as ``scaled`` does, a tuple each.

    With one side in one reduction, for threads wait for each; beside its Nyquist bins that side then has the sums of
    sizes, which no bin exceeds.
    """
    if SIDES == 1:
        a, g = made[0], made[1]
        if not FULL:
            a, g = tl.where(real, a, 0.0), tl.where(real, g, 0.0)
        sign, sizes = alternating(t), tl.abs(g)
        most, edge, g_most, g_edge, g_total = tl.reduce((tl.abs(a), a * sign, sizes, g * sign, sizes), 1, _five)
        return _operand(a, most, edge, edge, N1, N2, S), _operand(g, g_most, g_edge, g_total, N1, N2, S)
    else:
        out = ()
        for i in tl.static_range(1 + SIDES):
            out = out + (scaled(made[i], t, real, N1, N2, S, FULL),)
        return out


@triton.jit
def neighbours(x, edge, K: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return what the K taps of the frequency Conv1d meet, a tuple of tiles; ``edge`` (S,) is the Nyquist bin."""
    met = ()
    for j in tl.static_range(K):
        met = met + ((x if j == K // 2 else moved(x, edge, j - K // 2, N1, N2, S)),)
    return met


@triton.jit
def kernel_bins(
    met, met_im, edge, reach, factor, static, most, taps, total,
    SIDES: tl.constexpr, K: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Return h_f, DC halved, over a number: real and imaginary parts; the Nyquist bin, that number, (S,) both.

    That number is HEADROOM times a bound on the size of h_f. ``met`` are the ``neighbours`` of what Conv1d_f takes,
    with two SIDES ``met_im`` those of its imaginary parts, ``edge`` (S,) its Nyquist bin; it is ``factor`` (S,) times
    as large, at most ``reach`` (S,) before that. ``static`` and ``most`` as ``four_step/static.py`` has them.
    """
    COLUMNS: tl.constexpr = S * N2 // 2
    h, h_im = in_order(static, N1, COLUMNS), in_order(static + N1 * COLUMNS, N1, COLUMNS)
    bound, h_edge = tl.zeros((S,), tl.float32) + tl.load(most) + TINY, tl.zeros((S,), tl.float32) + tl.load(most + 1)
    k = bins(N1, N2, S)
    if SIDES:
        bound += factor * reach
    bound *= HEADROOM
    share = over_columns(1.0 / bound, N2, S)
    h, h_im = h * share, h_im * share
    if SIDES:
        # of a row beyond float32 nothing, lest it becomes NaN beside another
        by_column = over_columns(tl.where(bound < float("inf"), factor / bound, 0.0), N2, S)
        given = tl.zeros((N1, COLUMNS), tl.float32)
        for j in tl.static_range(K):
            tap = tl.load(taps + j).to(tl.float32) / total
            h += (by_column * tap) * met[j]
            if SIDES == 2:
                h_im += (by_column * tap) * met_im[j]
            if j < K // 2:  # to the Nyquist bin
                given += tl.where(k == N1 * N2 // 2 + (j - K // 2), tap * met[K // 2], 0.0)
        h_edge += factor * (tl.load(taps + K // 2).to(tl.float32) / total * edge + over_rows(given, N2, S))
    return tl.where(k == 0, 0.5 * h, h), h_im, h_edge / bound, bound


@triton.jit
def conditioned(
    signals, stages, twiddles, tile, static, most, taps, total, scale,
    SIDES: tl.constexpr, K: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Return the ``kernel_bins`` of ``scaled_signals`` and whether rows are spoiled, then what they are made of.

    Of that, with one side: G, real and imaginary parts, its Nyquist bin, what g was divided by, the ``neighbours`` of
    |G|. With two: the same of the key and of the query, then what conj(key) query was divided by, the ``neighbours`` of
    its real and of its imaginary parts.
    """
    spoiled = signals[0][4]
    if SIDES == 1:
        g, g_most, g_edge, g_sum, g_spoiled = signals[1]
        re, im = spectrum(g, stages, again(twiddles, tile, 1), N1, N2, S)
        met = neighbours(tl.sqrt(re * re + im * im), tl.abs(g_edge), K, N1, N2, S)
        h, h_im, h_edge, bound = kernel_bins(
            met, (), tl.abs(g_edge), g_sum, g_most * (total * scale), again(static, tile, 0), most, taps, total,
            SIDES, K, N1, N2, S,
        )  # fmt: skip
        return (h, h_im, h_edge, bound, spoiled + g_spoiled), (re, im, g_edge, g_most, met)
    elif SIDES == 2:
        key, k_most, k_edge, _, k_spoiled = signals[1]
        k_re, k_im = spectrum(key, stages, again(twiddles, tile, 1), N1, N2, S)
        query, q_most, q_edge, _, q_spoiled = signals[2]
        q_re, q_im = spectrum(query, stages, again(twiddles, tile, 0), N1, N2, S)
        re, im, edge = k_re * q_re + k_im * q_im, k_re * q_im - k_im * q_re, k_edge * q_edge
        x_most = tl.maximum(largest(re, im, N2, S), tl.maximum(tl.abs(edge), TINY))
        share = over_columns(1.0 / x_most, N2, S)
        met, met_im = (
            neighbours(re * share, edge / x_most, K, N1, N2, S),
            neighbours(im * share, 0.0 * edge, K, N1, N2, S),
        )
        factor = (k_most * scale) * (q_most * scale) * x_most * total
        h, h_im, h_edge, bound = kernel_bins(
            met, met_im, edge / x_most, 1.0, factor, again(static, tile, 0), most, taps, total, SIDES, K, N1, N2, S
        )
        parts = (k_re, k_im, k_edge, k_most, q_re, q_im, q_edge, q_most, x_most, met, met_im)
        return (h, h_im, h_edge, bound, spoiled + k_spoiled + q_spoiled), parts
    else:
        h, h_im, h_edge, bound = kernel_bins(
            (), (), 0.0, 0.0, 0.0, again(static, tile, 0), most, taps, total, SIDES, K, N1, N2, S
        )
        return (h, h_im, h_edge, bound, spoiled), ()


@triton.jit
def in_time(re, im, edge, factor, t, stages, twiddles, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return factor (x + (-1)^t edge), (S, n), x being the ``series`` of a spectrum; factor and edge are (S,)."""
    x = series(re.to(tl.float16), im.to(tl.float16), stages, twiddles, N1, N2, S)
    x = as_rows(x.to(tl.float16), N1, N2, S).to(tl.float32)
    return x * factor[:, None] + alternating(t) * (edge * factor)[:, None]
