"""Sines and cosines in float32, to its last bits.

The library's are as exact for any argument, by a branch for huge ones that is copied to every element of a tile:
thousands of instructions and spilled registers. Arguments here are a few radians; beyond 25,000, where a float32 does
not know its own phase to 1e-3, the reduction loses bits, and beyond 100,000 they count as 0.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

# pi in three pieces, 8, 11 and 24 bits: a whole number of 13 bits times either of the first two is exact.
PI_HIGH = tl.constexpr(201 / 64)
PI_MIDDLE = tl.constexpr(2028 / 2**21)
PI_LOW = tl.constexpr(3.141592653589793 - 201 / 64 - 2028 / 2**21)
OVER_PI = tl.constexpr(0.3183098861837907)
LARGEST = tl.constexpr(1e5)


@triton.jit
def _small(x):
    """Return arguments whose period can be found, 0 in place of the others; what is not finite becomes NaN."""
    return tl.where(tl.abs(x) < LARGEST, x, 0.0 * x)


@triton.jit
def _remainder(x, k):
    return ((x - k * PI_HIGH) - k * PI_MIDDLE) - k * PI_LOW


@triton.jit
def _sign(k):
    """Return (-1)^k of a whole number."""
    return 1.0 - 2.0 * (k - 2.0 * tl.floor(0.5 * k))


@triton.jit
def _half_period(r):
    """Return the sine of -pi / 2 ... pi / 2 by its series; the first term left out is 7e-10."""
    s = r * r
    high = 1 / 362880 + s * (-1 / 39916800 + s * (1 / 6227020800))
    return r + r * s * (-1 / 6 + s * (1 / 120 + s * (-1 / 5040 + s * high)))


@triton.jit
def sine(x):
    """Return sin(x)."""
    x = _small(x)
    k = tl.floor(x * OVER_PI + 0.5)
    return _sign(k) * _half_period(_remainder(x, k))


@triton.jit
def cosine(x):
    """Return cos(x)."""
    x = _small(x)
    k = tl.floor(x * OVER_PI)
    return -_sign(k) * _half_period(_remainder(x, k + 0.5))
