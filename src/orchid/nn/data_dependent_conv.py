"""The data-dependent convolution: one stage of the gated chain."""

import torch
from torch import Tensor, nn

from orchid.nn.implicit_filter import StaticKernel
from orchid.ops.circulant import circulant_conv
from orchid.ops.spectral_conv import full_precision, spectral_conv
from orchid.ops.transforms import Transform

# Up to this length a product with an n x n matrix for each channel is faster than transforms, on a GPU.
LONGEST_PRODUCT = 256


class DataDependentConv(nn.Module):
    """y = (h0 + hx(u)) conv x (eq. adaconv), computed as y = T^-1((h0_f + hx_f(u)) * T x).

    Args:
        static: the static kernel h0.
        conditioning: the network hx, or None for a static convolution.
        n: transform length.
        transform: T.
    """

    def __init__(self, static: StaticKernel, conditioning: nn.Module | None, *, n: int, transform: Transform) -> None:
        super().__init__()
        self.static, self.conditioning = static, conditioning
        self.n, self.transform = n, transform

    def spectrum(self, u: Tensor | None = None, pad: Tensor | None = None) -> Tensor:
        """Return h_f, (B, D, F) conditioned on u (B, D, M), or (D, F) without conditioning."""
        h0_f: Tensor = self.static()
        if self.conditioning is None:
            return h0_f
        hx_f: Tensor = self.conditioning(u, pad)
        return h0_f + hx_f

    def forward(self, x: Tensor, u: Tensor | None = None, pad: Tensor | None = None) -> Tensor:
        """Convolve x (B, D, L) with the kernel conditioned on u (B, D, M); ``pad`` (B, 1, M) masks u."""
        if self.conditioning is None and (dtype := self._product_dtype(x)) is not None:
            with full_precision(x):
                return circulant_conv(x.to(dtype), self.static.kernel())
        h_f = self.spectrum(u, pad)
        with full_precision(x):
            return spectral_conv(x, h_f, n=self.n, transform=self.transform)

    def _product_dtype(self, x: Tensor) -> torch.dtype | None:
        """Return the half precision in which a static convolution is a matrix product, or None: see ``circulant``."""
        if not x.is_cuda or x.dtype == torch.float64 or self.n > LONGEST_PRODUCT or self.transform.name != "dft":
            return None
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        return dtype if dtype in (torch.bfloat16, torch.float16) else None
