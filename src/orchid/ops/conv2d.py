"""Convolutions of images and of their spectra, for the operator in two dimensions."""

import torch
import torch.nn.functional as F
from torch import Tensor


def depthwise_conv2d(x: Tensor, taps: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the centred depthwise convolution of x (B, C, H, W) with taps (C, K, K), wrapped at the edges."""
    reach = taps.shape[-1] // 2
    return F.conv2d(F.pad(x, (reach,) * 4, mode="circular"), taps[:, None], bias, groups=x.shape[1])


def conv_bins2d(z: Tensor, taps: Tensor) -> Tensor:
    """Return the centred depthwise convolution of half spectra z (B, D, H, W / 2 + 1), real, with taps (D, K, K).

    Bins of the first axis lie on a circle; those of the second end at zero and Nyquist, beyond which is zero, as in
    one dimension.
    """
    reach = taps.shape[-1] // 2
    wrapped = F.pad(F.pad(z, (0, 0, reach, reach), mode="circular"), (reach, reach, 0, 0))
    return F.conv2d(wrapped, taps[:, None], groups=z.shape[1])


def real_kernel_spectrum(h_f: Tensor, width: int) -> Tensor:
    """Return h_f (..., H, W / 2 + 1) as the half spectrum of a real kernel.

    Columns that are their own mirror image (zero, and Nyquist for an even width) must be Hermitian along the first
    axis, h_f[-k] = conj h_f[k]: they are replaced by their Hermitian part.
    """
    hermitian = (h_f + h_f.flip(-2).roll(1, -2).conj()) / 2
    own = (2 * torch.arange(h_f.shape[-1], device=h_f.device)) % width == 0
    # by parts: exporters know no choice between complex numbers
    return torch.view_as_complex(torch.where(own[:, None], torch.view_as_real(hermitian), torch.view_as_real(h_f)))
