"""Sums that a program keeps in registers: tuples of vectors, added over its blocks, reduced at its end."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def zeros(COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Return COUNT vectors of zeros."""
    sums = ()
    for _ in tl.static_range(COUNT):
        sums = sums + (tl.zeros((BLOCK,), tl.float32),)
    return sums


@triton.jit
def plus(sums, more, COUNT: tl.constexpr):
    """Return the sums of two tuples of COUNT vectors."""
    total = ()
    for i in tl.static_range(COUNT):
        total = total + (sums[i] + more[i],)
    return total
