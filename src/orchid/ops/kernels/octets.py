"""Octets: eight positions of a stream that one thread loads as one vector, and works on in registers.

A load shifted by one position would be two bytes at a time; a thread that has positions 8 m ... 8 m + 7 needs from its
neighbours only what reaches over the edge, and loads their octets, which are in cache, as vectors too.
"""

import triton
import triton.language as tl


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
def convolved(x, own, COUNT: tl.constexpr, K: tl.constexpr):
    """Return COUNT values of a short convolution, own[K] + sum_j own[j] x[i + j]."""
    out = ()
    for i in tl.static_range(COUNT):
        total = own[K] + own[0] * x[i]
        for j in tl.static_range(1, K):
            total += own[j] * x[i + j]
        out = out + (total,)
    return out
