"""Linear convolution by kernels given in time, as long as the sequence: one-sided (causal) or two-sided."""

import torch
from torch import Tensor

from orchid.ops.circulant import circulant_conv, product_dtype
from orchid.ops.precision import at_least_float32, full_precision
from orchid.ops.spectral_conv import spectral_conv
from orchid.ops.transforms import get_transform


def long_conv(x: Tensor, forward: Tensor, backward: Tensor | None = None) -> Tensor:
    """Return y[t] = sum_(s <= t) forward[t - s] x[s] + sum_(s > t) backward[s - t - 1] x[s], in O(L log L).

    Nothing wraps around: the transform is twice as long as the sequence.

    Args:
        x: (..., L).
        forward: (..., N) with N >= L, broadcastable against x; lags 0, 1, ...
        backward: likewise, lags -1, -2, ...; None is a causal convolution.

    Returns:
        (..., L) in the dtype of x, or in autocast's where short rows are a matrix product (``circulant``).
    """
    length, dft = x.shape[-1], get_transform("dft")
    dtype = product_dtype(x, 2 * length) if x.ndim == 3 and forward.ndim == 2 else None
    with full_precision(x):
        past = at_least_float32(forward)[..., :length]
        future = torch.zeros_like(past) if backward is None else at_least_float32(backward)[..., :length].flip(-1)
        kernel = torch.cat((past, future), dim=-1)
        if dtype is not None:
            return circulant_conv(x.to(dtype), kernel)
        h_f = dft.kernel_spectrum(kernel)
        return spectral_conv(x, h_f, n=2 * length, transform=dft)
