"""The O(L log L) operator: conditioning in the frequency domain and convolution by a spectrum, in plain torch.

Everything here runs in float32 at least (float64 stays float64), with autocast off, and hands the caller's dtype
back: half-precision FFTs do not exist on every device, and a kernel spectrum does not survive rounding to bfloat16.
Each function is the fast twin of one in ``reference.py``.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from orchid.ops.precision import at_least_float32
from orchid.ops.transforms import Transform

SIGMAS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda r: r,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softsign": F.softsign,
    "softshrink": F.softshrink,
}


def on_magnitude(sigma: str, z: Tensor) -> Tensor:
    """Return sigma(|z|) sgn(z), with sgn(0) = 0 and finite gradients there, for z real or complex."""
    if sigma == "identity":
        return z
    return SIGMAS[sigma](z.abs()) * z.sgn()


def phase_spectrum(g: Tensor, *, n: int, transform: Transform, norm: str) -> Tensor:
    """Return |T g|, (B, D, F) real, of g (B, D, L): eq. adaconv1 without its frequency Conv1d."""
    return transform.forward(at_least_float32(g), n, norm).abs()


def cross_spectrum(k: Tensor, q: Tensor, *, n: int, transform: Transform, norm: str, sigma: str) -> Tensor:
    """Return conj(T k) sigma(T q), (B, D, F), of k and q (B, D, L): eq. adaconv2_nonlinearity likewise."""
    k_f = transform.forward(at_least_float32(k), n, norm)
    q_f = transform.forward(at_least_float32(q), n, norm)
    return k_f.conj() * on_magnitude(sigma, q_f)


def spectral_conv(x: Tensor, h_f: Tensor, *, n: int, transform: Transform) -> Tensor:
    """Return T^-1(h_f * T x) on the first L samples: convolution by the kernel whose spectrum is h_f.

    Args:
        x: (B, D, L), L <= n, zero padded to n.
        h_f: (B, D, F) or (D, F), real or complex, at least float32.
        n: transform length.
        transform: the transform T.

    Returns:
        (B, D, L) in the dtype of x.
    """
    length = x.shape[-1]
    y_f = transform.forward(at_least_float32(x), n) * h_f
    return transform.inverse(y_f, n)[..., :length].to(x.dtype)
