"""Octets: eight positions of a row that one thread loads as one vector, and works on in registers.

A load shifted by one position would be two bytes at a time; a thread that has positions 8 m ... 8 m + 7 needs from its
neighbours only what reaches over the edge, and loads that, which is in cache, as a vector too. A value of many
positions is a tuple: element i of every thread's is one tensor.

Rows are contiguous, of whole octets: streams (16 or 32 bits a number), or the real or imaginary parts of complex rows,
where two channels are one row.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def in_eights(size):
    """Return a number that eight divides in a way that the compiler sees it: loads are vectors only then."""
    return size // 8 * 8


@triton.jit
def eight(x):
    """Split (..., 2, 2, 2) into eight (...), in the order of positions."""
    even, odd = tl.split(x)
    x04, x26 = tl.split(even)
    x15, x37 = tl.split(odd)
    x0, x4 = tl.split(x04)
    x2, x6 = tl.split(x26)
    x1, x5 = tl.split(x15)
    x3, x7 = tl.split(x37)
    return x0, x1, x2, x3, x4, x5, x6, x7


@triton.jit
def whole(x):
    """Join eight (...) into (..., 2, 2, 2)."""
    even = tl.join(tl.join(x[0], x[4]), tl.join(x[2], x[6]))
    odd = tl.join(tl.join(x[1], x[5]), tl.join(x[3], x[7]))
    return tl.join(even, odd)


@triton.jit
def _addresses(row, position, COUNT: tl.constexpr):
    return row[:, None] + (position[:, None] + tl.arange(0, COUNT)[None, :])


@triton.jit
def octet(row, m, inside, BLOCK: tl.constexpr):
    """Load octets m of rows (BLOCK,), zero where not inside."""
    x = tl.load(_addresses(row, 8 * m, 8), mask=inside[:, None], other=0)
    return eight(tl.reshape(x, (BLOCK, 2, 2, 2)))


@triton.jit
def both_octets(row, m, inside, BLOCK: tl.constexpr):
    """Load octets m of the two channels of complex rows: (BLOCK, 2, 2, 2) each."""
    x = tl.load(_addresses(row, 16 * m, 16), mask=inside[:, None], other=0.0)
    return tl.split(tl.reshape(x, (BLOCK, 2, 2, 2, 2)))


@triton.jit
def put_both_octets(row, m, inside, x, y, BLOCK: tl.constexpr):
    """Store octets m of two channels into complex rows."""
    values = tl.reshape(tl.join(whole(x), whole(y)), (BLOCK, 16))
    tl.store(_addresses(row, 16 * m, 16), values, mask=inside[:, None])


@triton.jit
def put_octet(row, m, inside, x, BLOCK: tl.constexpr):
    """Store octets m."""
    values = tl.reshape(whole(x), (BLOCK, 8)).to(row.dtype.element_ty)
    tl.store(_addresses(row, 8 * m, 8), values, mask=inside[:, None])


@triton.jit
def around(
    row, m, before, after, inside, is_before, is_after,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Load positions 8 m - BEFORE ... 8 m + 7 + AFTER."""
    x = octet(row, m, inside, BLOCK)
    if BEFORE > 0:
        x = octet(row, before, is_before, BLOCK)[8 - BEFORE :] + x
    if AFTER > 0:
        x = x + octet(row, after, is_after, BLOCK)[:AFTER]
    return x


@triton.jit
def neighbours(m, octets, period, inside, CIRCULAR: tl.constexpr):
    """Return the octets before and after, of rows of ``octets`` on a circle of ``period``, and which of them exist."""
    before, after = m - 1, m + 1
    if CIRCULAR:
        before, after = tl.where(m == 0, period - 1, before), tl.where(after == period, 0, after)
    return before, after, inside & (before >= 0) & (before < octets), inside & (after < octets)


@triton.jit
def real_around(
    pad, m, before, after, inside, is_before, is_after,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, HAS_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return which of positions 8 m - BEFORE ... 8 m + 7 + AFTER hold real tokens."""
    real = ()
    if HAS_PAD:
        pads = around(pad, m, before, after, inside, is_before, is_after, BEFORE, AFTER, BLOCK)
        for i in tl.static_range(8 + BEFORE + AFTER):
            there = is_before if i < BEFORE else is_after if i >= 8 + BEFORE else inside
            real = real + (there & (pads[i] == 0),)
    else:
        for i in tl.static_range(8 + BEFORE + AFTER):
            real = real + (is_before if i < BEFORE else is_after if i >= 8 + BEFORE else inside,)
    return real


@triton.jit
def with_offset(x, offset, real, COUNT: tl.constexpr):
    """Return a stream's values in float32 with its offset, zero where no token is real."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.where(real[i], x[i].to(tl.float32) + offset, 0.0),)
    return out


@triton.jit
def times(x, y, real, COUNT: tl.constexpr):
    """Return products in float32, zero where no token is real."""
    out = ()
    for i in tl.static_range(COUNT):
        out = out + (tl.where(real[i], x[i].to(tl.float32) * y[i].to(tl.float32), 0.0),)
    return out


@triton.jit
def convolved(x, own, COUNT: tl.constexpr, K: tl.constexpr):
    """Return COUNT values of a short convolution, own[K] + sum_j own[j] x[i + j]."""
    out = ()
    for i in tl.static_range(COUNT):
        total = own[K] + own[0] * x[i]
        for j in tl.static_range(1, K):
            total += own[j] * x[i + j]
        out = out + (total,)
    return out
