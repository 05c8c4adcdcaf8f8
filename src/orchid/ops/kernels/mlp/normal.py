"""The normal distribution, of which gelu is made: gelu(x) = x P(x), its slope P(x) + x p(x)."""

# mypy: ignore-errors

import triton
import triton.language as tl

SQRT_HALF = tl.constexpr(0.7071067811865476)
# The density at 0.
DENSITY = tl.constexpr(0.3989422804014327)


@triton.jit
def normal(x, EXACT: tl.constexpr):
    """Return the share P of the normal distribution that lies below x, and its density p at x, float32.

    Where not EXACT, P is off by 3e-7 at most, far less than what half precision rounds (Abramowitz and Stegun, 7.1.26):
    the exponential is the same for both and there is no branch, where the library's error function has several.
    """
    bell = tl.exp(-0.5 * x * x)
    if EXACT:
        return 0.5 * (1.0 + tl.erf(x * SQRT_HALF)), DENSITY * bell
    t = 1.0 / (1.0 + (0.3275911 * SQRT_HALF) * tl.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * bell
    return tl.where(x > 0, 1.0 - tail, tail), DENSITY * bell
