"""Tiles of short rows in time: ROWS samples of one channel, all n positions, as operands of matrix products.

A thread holds octets of positions (``octets.py``). Signals are divided by their row's largest value before they are
rounded to float16: nothing overflows, and little is lost.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import interpreter_on
from orchid.ops.kernels.streams.octets import convolved, eight, whole
from orchid.ops.kernels.streams.parameters import wrapped

TINY = tl.constexpr(1e-30)
# What rounding to float16 leaves of numbers up to 1.
NOISE = tl.constexpr(2.0**-11)
# Numbers of a stream in a line of the cache, and whether there is a cache.
LINE = tl.constexpr(64)
CACHED = tl.constexpr(not interpreter_on())


@triton.jit
def towards(gradient, size):
    """Return the gradient of |G| over |G|, for numbers up to 1: what turns G into its own gradient.

    Zero where |G| is what rounding has left of nothing: rows that repeat themselves have such bins, and no direction
    in them.
    """
    return tl.where(size <= NOISE, 0.0, gradient / tl.maximum(size, NOISE))


@triton.jit
def signed(gradient, x):
    """Return the gradient of |x| as that of x, likewise."""
    return tl.where(tl.abs(x) <= NOISE, 0.0, tl.where(x < 0, -gradient, gradient))


@triton.jit
def fetch(lines):
    """Let lines, one address each, come into the L2 cache. Nothing waits for them."""
    if CACHED:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [lines.to(tl.int64)], tl.int32, is_pure=False, pack=1
        )


@triton.jit
def octets(x, ROWS: tl.constexpr, M: tl.constexpr):
    """Return the eight positions of every octet of (ROWS, 8 M), (ROWS, M) each."""
    return eight(tl.reshape(x, (ROWS, M, 2, 2, 2)))


@triton.jit
def samples(tile, batch, ROWS: tl.constexpr):
    """Return the samples of a tile, (ROWS, 1), none beyond the last one, and which of them there are."""
    b = (tile * ROWS + tl.arange(0, ROWS))[:, None]
    return tl.minimum(b, batch - 1).to(tl.int64), b < batch


@triton.jit
def within(t, here, length, FULL: tl.constexpr):
    """Return whether positions (1, N) lie within the rows of samples (ROWS, 1)."""
    inside = here & (t >= 0)
    if not FULL:
        inside = inside & (t < length)
    return inside


@triton.jit
def real_tokens(t, inside, pads, HAS_PAD: tl.constexpr):
    """Return whether positions ``within`` rows hold real tokens."""
    if HAS_PAD:
        inside = inside & (tl.load(pads + t, mask=inside, other=1) == 0)
    return inside


@triton.jit
def load_tile(row, t, other, inside, real, FULL: tl.constexpr):
    """Load positions t of rows, ``other`` where no token is real; rows beyond the last sample are left as they are.

    All tokens inside are loaded, in vectors, and those that are not real replaced; where FULL, all are.
    """
    x = tl.load(row + t, mask=inside, other=0.0).to(tl.float32)
    if not FULL:
        x = tl.where(real, x, other)
    return x


@triton.jit
def stream(
    row, offset, t, here, real, length, pads, period,
    ROWS: tl.constexpr, M: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr,
):  # fmt: skip
    """Return positions 8 m - (K - 1) + SHIFT ... 8 m + 7 + SHIFT of a stream, less its offset, as vectors (ROWS, M).

    The neighbours of an octet come with theirs, in one load each. What is not real is zero with the offset.
    """
    x = octets(load_tile(row, t, -offset, within(t, here, length, FULL), real, FULL), ROWS, M)
    if SHIFT < K - 1:
        before = wrapped(t - 8, period, CIRCULAR)
        inside = within(before, here, length, FULL)
        there = real_tokens(before, inside, pads, HAS_PAD)
        x = octets(load_tile(row, before, -offset, inside, there, False), ROWS, M)[9 - K + SHIFT :] + x
    if SHIFT > 0:
        after = wrapped(t + 8, period, CIRCULAR)
        inside = within(after, here, length, False)
        there = real_tokens(after, inside, pads, HAS_PAD)
        x = x + octets(load_tile(row, after, -offset, inside, there, False), ROWS, M)[:SHIFT]
    return x


@triton.jit
def convolved_tile(x, own, ROWS: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    """Return the short convolution of a ``stream``, bias added, (ROWS, 8 M).

    The offset, which the stream lacks, is added to all taps' sum at once: offset (own[0] + ... + own[K - 1]).
    """
    constant = own[K]
    for j in tl.static_range(K):
        constant += own[j] * own[K + 1]
    return tl.reshape(whole(convolved(x, own[:K] + (constant,), 8, K)), (ROWS, 8 * M))


@triton.jit
def operand(x, real, FULL: tl.constexpr):
    """Return rows as float16, divided by their largest value, and that value (ROWS,); zero where no token is real."""
    if not FULL:
        x = tl.where(real, x, 0.0)
    most = tl.maximum(tl.max(tl.abs(x), axis=1), TINY)
    return (x * (1.0 / most)[:, None]).to(tl.float16), most


@triton.jit
def short_tile(
    row, own, t, here, real, length, pads, period,
    ROWS: tl.constexpr, M: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr,
):  # fmt: skip
    """Return the short convolution of a stream, (ROWS, 8 M); ``own`` are its ``parameters``."""
    x = stream(row, own[K + 1], t, here, real, length, pads, period, ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD)
    return convolved_tile(x, own, ROWS, M, K)


@triton.jit
def signals_in_time(
    v_row, s_row, v_own, s_own, g_own, t, here, real, length, pads, period,
    ROWS: tl.constexpr, M: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr,
    CIRCULAR: tl.constexpr, FULL: tl.constexpr, HAS_PAD: tl.constexpr,
):  # fmt: skip
    """Return a = s_1 * v and the conditioning sequence of every side, (ROWS, 8 M), wherever a token is real."""
    v = stream(v_row, v_own[K + 1], t, here, real, length, pads, period, ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD)
    s = short_tile(s_row, s_own, t, here, real, length, pads, period, ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD)
    made = (convolved_tile(v, v_own, ROWS, M, K) * s,)
    for side in tl.static_range(SIDES):
        made = made + (convolved_tile(v, g_own[side * (K + 2) :], ROWS, M, K),)
    return made


@triton.jit
def signals(
    v_row, s_row, v_own, s_own, g_own, t, here, real, length, pads, period,
    ROWS: tl.constexpr, M: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr,
    CIRCULAR: tl.constexpr, FULL: tl.constexpr, HAS_PAD: tl.constexpr,
):  # fmt: skip
    """Return ``signals_in_time`` as operands, each with its rows' largest."""
    in_time = signals_in_time(
        v_row, s_row, v_own, s_own, g_own, t, here, real, length, pads, period,
        ROWS, M, SIDES, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
    )  # fmt: skip
    made = operand(in_time[0], real, FULL)
    if SIDES:
        made = made + operand(in_time[1], real, FULL)
    return made
