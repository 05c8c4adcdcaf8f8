"""What the programs of other kernels have summed, added up in a fixed order and written as gradients of parameters."""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched


@triton.jit
def _added(x, first, parts, stride, c, inside, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the sum of the columns c (COLUMNS,) over the parts of x from the first on, ``stride`` apart."""
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for own in range(first, parts, PARTS):
        part = (own + tl.arange(0, PARTS))[:, None]
        here = x + part.to(tl.int64) * stride + c[None, :]
        total += tl.load(here, mask=(part < parts) & inside[None, :], other=0.0).to(tl.float32)
    return tl.sum(total, axis=0)


@launched
@triton.jit(do_not_specialize=["parts", "steps"])
def added_up_kernel(x, out, parts, size, steps, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """Write the sums of x (parts, size) over shares of its parts, ``steps`` times PARTS each: (shares, size)."""
    c, share = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    first = share * steps * PARTS
    total = _added(x, first, tl.minimum(first + steps * PARTS, parts), size, c, c < size, PARTS, BLOCK)
    tl.store(out + share.to(tl.int64) * size + c, total, mask=c < size)


@launched
@triton.jit(do_not_specialize=["first", "parts", "u_parts", "spectral_parts"])
def layer_totals_kernel(
    sums, u_sums, spectral_sums, doffset, dweight, dbias, dspatial, dspectral,
    first, D, parts, u_parts, spectral_parts, spectral_part, spectral_channel,
    WAYS: tl.constexpr, SIDES: tl.constexpr, CONTEXT: tl.constexpr, K: tl.constexpr,
    PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write what a channel's programs have summed: a program takes a channel.

    sums (channels / WAYS, parts, WAYS, 3 (K + 1) + 3 + SIDES K): for v, s_1, s_2 the taps and the bias, the three
    offsets, and without CONTEXT the taps of Conv1d_t. With it they are u_sums (..., SIDES K + 1), and what it gives to
    the offset of v. spectral_sums (spectral_parts, channels, K) are those of Conv1d_f.
    """
    OFFSETS: tl.constexpr = 3 * (K + 1)
    OWN: tl.constexpr = 0 if CONTEXT else SIDES * K
    COUNT: tl.constexpr = OFFSETS + 3 + OWN
    own = tl.program_id(0)
    d, group, way = first + own, (own // WAYS).to(tl.int64), own % WAYS
    c = tl.arange(0, COLUMNS)
    total = _added(
        sums + (group * parts * WAYS + way) * COUNT, 0, parts, WAYS * COUNT, c, c < COUNT, PARTS, COLUMNS
    )  # fmt: skip
    role, j = c // (K + 1), c % (K + 1)
    tl.store(dweight + (role * D + d) * K + j, total, mask=(c < OFFSETS) & (j < K))
    tl.store(dbias + role * D + d, total, mask=(c < OFFSETS) & (j == K))
    if CONTEXT:
        u_total = _added(
            u_sums + (group * u_parts * WAYS + way) * (SIDES * K + 1), 0, u_parts, WAYS * (SIDES * K + 1),
            c, c <= SIDES * K, PARTS, COLUMNS,
        )  # fmt: skip
        total += tl.where(c == OFFSETS, tl.sum(tl.where(c == SIDES * K, u_total, 0.0)), 0.0)
        tl.store(dspatial + (c // K * D + d) * K + c % K, u_total, mask=c < SIDES * K)
    else:
        tap = c - (OFFSETS + 3)
        tl.store(dspatial + (tap // K * D + d) * K + tap % K, total, mask=(tap >= 0) & (c < COUNT))
    tl.store(doffset + (c - OFFSETS) * D + d, total, mask=(c >= OFFSETS) & (c < OFFSETS + 3))
    if SIDES:
        taps = _added(
            spectral_sums + own.to(tl.int64) * spectral_channel, 0, spectral_parts, spectral_part, c, c < K,
            PARTS, COLUMNS,
        )  # fmt: skip
        tl.store(dspectral + d * K + c, taps, mask=c < K)
