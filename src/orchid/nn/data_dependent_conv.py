"""The data-dependent convolution: one stage of the gated chain."""

from torch import Tensor, nn

from orchid.nn.static_kernel import StaticKernel
from orchid.ops.circulant import circulant_conv, product_dtype
from orchid.ops.precision import full_precision
from orchid.ops.spectral_conv import spectral_conv
from orchid.ops.transforms import Transform


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
        if self.conditioning is None and self.transform.name == "dft" and (dtype := product_dtype(x, self.n)):
            with full_precision(x):
                return circulant_conv(x.to(dtype), self.static(in_time=True))
        h_f = self.spectrum(u, pad)
        with full_precision(x):
            return spectral_conv(x, h_f, n=self.n, transform=self.transform)
