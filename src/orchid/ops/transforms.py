"""The transforms T of the paper: the DFT and the DCT-II, for any length, behind one small protocol.

This is the only file that calls ``torch.fft``. A signal goes through the orthonormal transform; a kernel spectrum is
a plain multiplier, ``y = T^-1(h_f * T x)``, so a delta tap is the constant 1 in both transforms. ``norm="backward"``
leaves out the orthonormal scaling; the conditioning networks offer it as the paper's ablation does.

Shapes: x (..., L) real with L <= n, zero padded to n; spectra (..., F) with F = ``bins(n)``.
"""

import math
from typing import Any, Protocol

import torch
from torch import Tensor

from orchid.ops.checks import check_choice
from orchid.ops.forward_mode import applied

NORMS = ("ortho", "backward")


class Transform(Protocol):
    """What the operator asks of a transform; ``n`` is always the transform length."""

    name: str
    complex: bool

    def bins(self, n: int) -> int:
        """Return F, the number of spectral bins."""

    def forward(self, x: Tensor, n: int, norm: str = "ortho") -> Tensor:
        """Return T x, (..., F), of x (..., L) zero padded to n."""

    def inverse(self, x_f: Tensor, n: int) -> Tensor:
        """Return the orthonormal T^-1 x_f, (..., n) real."""

    def kernel_spectrum(self, h: Tensor) -> Tensor:
        """Return the multiplier (..., F) of the time-domain kernel h (..., n)."""

    def kernel(self, h_f: Tensor, n: int) -> Tensor:
        """Return the time-domain kernel (..., n) of a multiplier: the inverse of ``kernel_spectrum``."""

    def real_edges(self, h_f: Tensor, n: int) -> Tensor:
        """Return h_f as the spectrum of a real kernel: bins that are their own mirror image are made real."""


class _HalfSpectrum(torch.autograd.Function):
    """``rfft`` with a real inverse transform as its adjoint.

    The library goes through a complex transform of the full spectrum instead, twice the work and the memory. The
    adjoint of x -> X_k, 0 <= k <= n / 2, is sum_k Re(g_k exp(2 pi i k t / n)); an inverse real transform counts a bin
    that has a mirror image twice, so those are halved first.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, n: int, norm: str) -> Tensor:
        return torch.fft.rfft(x, n=n, norm=norm)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int, str], output: Tensor) -> None:
        x, ctx.n, ctx.norm = inputs
        ctx.length = x.shape[-1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (grad,), n = gradients, ctx.n
        k = torch.arange(grad.shape[-1], device=grad.device)
        count = grad.real.new_full(k.shape, 0.5).masked_fill((2 * k) % n == 0, 1.0)
        adjoint = "ortho" if ctx.norm == "ortho" else "forward"
        return torch.fft.irfft(grad * count, n=n, norm=adjoint)[..., : ctx.length], None, None


class DFT:
    """Discrete Fourier transform of a real signal, kept as the half spectrum: F = n // 2 + 1 complex bins."""

    name = "dft"
    complex = True

    def bins(self, n: int) -> int:
        """Return F = n // 2 + 1."""
        return n // 2 + 1

    def forward(self, x: Tensor, n: int, norm: str = "ortho") -> Tensor:
        """Return the half spectrum of x (..., L), zero padded to n."""
        return applied(_HalfSpectrum, x, n, norm)

    def inverse(self, x_f: Tensor, n: int) -> Tensor:
        """Return the real signal of an orthonormal half spectrum."""
        return torch.fft.irfft(x_f, n=n, norm="ortho")

    def kernel_spectrum(self, h: Tensor) -> Tensor:
        """Return sum_t h[t] exp(-2 pi i k t / n): the convolution theorem's multiplier."""
        return applied(_HalfSpectrum, h, h.shape[-1], "backward")

    def kernel(self, h_f: Tensor, n: int) -> Tensor:
        """Return the real kernel of a half-spectrum multiplier."""
        return torch.fft.irfft(h_f, n=n, norm="backward")

    def real_edges(self, h_f: Tensor, n: int) -> Tensor:
        """Make DC and, for even n, Nyquist real.

        An inverse real FFT reads only the real part there; backends differ in what they do with the rest, so it is
        dropped here, explicitly and out of place.
        """
        if not h_f.is_complex():
            return h_f
        bin_index = torch.arange(h_f.shape[-1], device=h_f.device)
        return torch.complex(h_f.real, h_f.imag.masked_fill((2 * bin_index) % n == 0, 0.0))


class DCT:
    """Orthonormal DCT-II with F = n real bins, C[k, t] = s_k cos(pi k (2 t + 1) / (2 n)), C C^T = 1.

    ``norm="backward"`` is the common unscaled form, 2 sum_t x[t] cos(pi k (2 t + 1) / (2 n)). Computed by one real FFT
    of length n: with w = (x[0], x[2], ..., x[3], x[1]) and W_k = exp(-i pi k / (2 n)) DFT(w)_k, the coefficients
    are Re W_k at k and -Im W_k at n - k, for 0 <= k <= n / 2.
    """

    name = "dct"
    complex = False

    def bins(self, n: int) -> int:
        """Return F = n."""
        return n

    def forward(self, x: Tensor, n: int, norm: str = "ortho") -> Tensor:
        """Return the DCT-II of x (..., L), zero padded to n."""
        if x.shape[-1] < n:
            x = torch.nn.functional.pad(x, (0, n - x.shape[-1]))
        w = torch.cat((x[..., ::2], x[..., 1::2].flip(-1)), dim=-1)
        half = applied(_HalfSpectrum, w, n, "backward") * self._twiddle(n, -1, x)
        mirrored = half.imag[..., 1 : (n + 1) // 2].flip(-1).neg()
        return torch.cat((half.real, mirrored), dim=-1) * self._scale(n, norm, x)

    def inverse(self, x_f: Tensor, n: int) -> Tensor:
        """Return C^T x_f."""
        x_f = x_f / self._scale(n, "ortho", x_f)
        low = x_f[..., : n // 2 + 1]
        high = torch.nn.functional.pad(x_f[..., (n + 1) // 2 :].flip(-1), (1, 0))[..., : n // 2 + 1]
        w = torch.fft.irfft(torch.complex(low, -high) * self._twiddle(n, 1, x_f), n=n, norm="backward")
        x = torch.stack((w[..., : n // 2], w[..., (n + 1) // 2 :].flip(-1)), dim=-1).flatten(-2)
        return torch.cat((x, w[..., n // 2 : (n + 1) // 2]), dim=-1)

    def kernel_spectrum(self, h: Tensor) -> Tensor:
        """Return sqrt(n) C h."""
        n = h.shape[-1]
        return self.forward(h, n) * math.sqrt(n)

    def kernel(self, h_f: Tensor, n: int) -> Tensor:
        """Return C^T h_f / sqrt(n)."""
        return self.inverse(h_f, n) / math.sqrt(n)

    def real_edges(self, h_f: Tensor, n: int) -> Tensor:
        """Return h_f: every bin is real."""
        return h_f

    @staticmethod
    def _twiddle(n: int, sign: int, like: Tensor) -> Tensor:
        angle = torch.arange(n // 2 + 1, device=like.device, dtype=like.dtype) * (sign * math.pi / (2 * n))
        return torch.complex(angle.cos(), angle.sin())

    @staticmethod
    def _scale(n: int, norm: str, like: Tensor) -> Tensor:
        """Factors (n,) between sum_t x[t] cos(...) and the coefficients."""
        if norm == "backward":
            return like.new_full((n,), 2.0)
        k = torch.arange(n, device=like.device)
        return like.new_full((n,), math.sqrt(2.0 / n)).masked_fill(k == 0, math.sqrt(1.0 / n))


def complex_dft(x: Tensor) -> Tensor:
    """Return the unscaled DFT of complex rows (..., n, 2), stored as pairs of floats."""
    return torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))


def inverse_complex_dft(x_f: Tensor) -> Tensor:
    """Return the unscaled inverse DFT of complex rows (..., n, 2): n times the inverse of ``complex_dft``."""
    return torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x_f), norm="forward"))


def dft2(x: Tensor, norm: str = "ortho") -> Tensor:
    """Return the half spectra (..., H, W / 2 + 1) of real images (..., H, W)."""
    return torch.fft.rfft2(x, norm=norm)


def inverse_dft2(x_f: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the real images (..., H, W) of orthonormal half spectra."""
    return torch.fft.irfft2(x_f, s=size, norm="ortho")


TRANSFORMS: dict[str, Transform] = {"dft": DFT(), "dct": DCT()}


def get_transform(name: str) -> Transform:
    """Return the transform called ``name``."""
    return TRANSFORMS[check_choice("transform", name, TRANSFORMS)]
