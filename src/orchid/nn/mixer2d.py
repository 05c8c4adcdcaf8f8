"""The mixer of images: Orchid's operator with transforms, short convolutions and kernels in two dimensions."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.nn.fused import BACKENDS, fused_hidden, image_settings_obstacle, takes_kernels
from orchid.nn.implicit_filter2d import ImplicitFilter2d
from orchid.nn.projections import LinearFromChannels, LinearToChannels
from orchid.nn.short_conv import unit_gain_
from orchid.ops.checks import check_at_least, check_choice, check_fraction, check_odd
from orchid.ops.kernels.launch import interpreter_on
from orchid.ops.spectral_conv import at_least_float32, full_precision
from orchid.ops.transforms import dft2, inverse_dft2

CONDITIONINGS = ("phase", "cross", "static")
SIDES = {"phase": 1, "cross": 2, "static": 0}


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
    mirror = h_f.flip(-2).roll(1, -2).conj()
    column = torch.arange(h_f.shape[-1], device=h_f.device)
    return torch.where((2 * column) % width == 0, (h_f + mirror) / 2, h_f)


class OrchidMixer2d(nn.Module):
    """y = out(s_2 * T^-1((h0_f + hx_f(v)) * T(s_1 * v))), with T the orthonormal DFT of both axes of an image.

    v, s_1, s_2 are projections of x, each through a depthwise K x K convolution that wraps at the edges. The kernel is

        phase:  hx_f = Conv2d_f(|T Conv2d_t(v)|)            cross:  hx_f = Conv2d_f(conj(T k(v)) T q(v))

    and the static one an implicit filter with a delta tap. A circular shift of x in either axis shifts y alike: the
    magnitude, or the product of a spectrum with the conjugate of another, does not change. The paper names this
    operator as future work.

    Args:
        d_model: D.
        height: H.
        width: W.
        conditioning: "phase", "cross" or "static".
        kernel_size: K, odd.
        filter_embedding: of the implicit filter, a lag of one axis.
        filter_width: of the implicit filter.
        dropout: of the output.
        backend: "torch", "triton" (GPU kernels around the FFT, an error where they do not serve) or "auto" (the
            kernels on a CUDA device where they serve, else torch).

    Shape:
        x (B, H, W, D) -> (B, H, W, D).

    Example:
        >>> OrchidMixer2d(8, 6, 6)(torch.zeros(2, 6, 6, 8)).shape
        torch.Size([2, 6, 6, 8])
    """

    def __init__(
        self,
        d_model: int,
        height: int,
        width: int,
        *,
        conditioning: str = "phase",
        kernel_size: int = 3,
        filter_embedding: int = 5,
        filter_width: int = 64,
        dropout: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.d_model = check_at_least("d_model", d_model, 1)
        self.height, self.width = check_at_least("height", height, 1), check_at_least("width", width, 1)
        self.conditioning = check_choice("conditioning", conditioning, CONDITIONINGS)
        if check_odd("kernel_size", kernel_size) > 2 * min(height, width) + 1:
            raise ValueError(f"kernel_size={kernel_size} reaches around images of {height} x {width}")
        sides = SIDES[conditioning]
        self.in_proj, self.out_proj = LinearToChannels(d_model, 3 * d_model), LinearFromChannels(d_model, d_model)
        self.short_weight = nn.Parameter(torch.empty(3 * d_model, kernel_size, kernel_size))
        self.short_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.spatial = nn.Parameter(torch.empty(sides, d_model, kernel_size, kernel_size))
        self.spectral = nn.Parameter(torch.empty(d_model if sides else 0, kernel_size, kernel_size))
        self.filter = ImplicitFilter2d(d_model, height, width, embedding=filter_embedding, width=filter_width)
        self.delta = nn.Parameter(torch.empty(d_model))
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.backend = check_choice("backend", backend, BACKENDS)
        self._obstacle = image_settings_obstacle(kernel_size)
        if backend == "triton" and self._obstacle is not None:
            raise ValueError(f"backend='triton' cannot serve: {self._obstacle}; use 'auto' or 'torch'")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw taps of unit gain and small delta taps; biases of the short convolutions start at zero."""
        for taps in (self.short_weight, self.spatial, self.spectral):
            if taps.numel():
                unit_gain_(taps.flatten(-2))
        nn.init.zeros_(self.short_bias)
        nn.init.normal_(self.delta, std=0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Mix x (B, H, W, D) along both axes."""
        expected = (self.height, self.width, self.d_model)
        if x.dim() != 4 or x.shape[1:] != expected:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (batch, {', '.join(map(str, expected))})")
        fused = takes_kernels(self.backend, self._obstacle, x, self._inside, interpreted=interpreter_on())
        projected = self.in_proj(x.flatten(1, 2), biased=not fused)
        y = self._fused_mix(projected) if fused else self._mix(projected.unflatten(2, (self.height, self.width)))
        return self.dropout(self.out_proj(y).unflatten(1, (self.height, self.width)))

    def _inside(self) -> tuple[nn.Module, ...]:
        """Return the modules that the kernels take the place of."""
        return (self.in_proj,)

    def _fused_mix(self, projected: Tensor) -> Tensor:
        """Return what stands between the projections, (B, D, H W), of streams (B, 3 D, H W) without their bias."""
        from orchid.ops.kernels.images.operator import fused_image_mix

        with full_precision(projected):
            static = self.static_spectrum(fused_hidden(self.filter, half=projected.dtype == torch.bfloat16))
        return fused_image_mix(
            projected, self.in_proj.bias, self.short_weight, self.short_bias, self.spatial, self.spectral, static,
            (self.height, self.width),
        )  # fmt: skip

    def _mix(self, projected: Tensor) -> Tensor:
        """Return the same, of streams (B, 3 D, H, W)."""
        v, s1, s2 = depthwise_conv2d(projected, self.short_weight, self.short_bias).chunk(3, dim=1)
        u = projected[:, : self.d_model]
        with full_precision(projected):
            a_f = dft2(at_least_float32(s1 * v))
            y = inverse_dft2(self.spectrum(u) * a_f, (self.height, self.width)).to(s2.dtype)
        return (s2 * y).flatten(2)

    def static_spectrum(self, hidden: Tensor | None = None) -> Tensor:
        """Return h0_f, (D, H, W / 2 + 1); ``hidden`` as the filter takes it."""
        return dft2(self.filter(hidden), norm="backward") + at_least_float32(self.delta)[:, None, None]

    def spectrum(self, u: Tensor) -> Tensor:
        """Return h_f, (B, D, H, W / 2 + 1) conditioned on the projected u (B, D, H, W), (D, ...) where static."""
        h0_f = self.static_spectrum()
        if self.conditioning == "static":
            return h0_f
        taps = at_least_float32(self.spectral)
        spectra = [dft2(at_least_float32(depthwise_conv2d(u, w.to(u.dtype)))) for w in self.spatial]
        if self.conditioning == "phase":
            hx_f = conv_bins2d(spectra[0].abs(), taps).to(h0_f.dtype)
        else:
            crossed = spectra[0].conj() * spectra[1]
            hx_f = torch.complex(conv_bins2d(crossed.real, taps), conv_bins2d(crossed.imag, taps))
        return real_kernel_spectrum(h0_f + hx_f, self.width)

    def extra_repr(self) -> str:
        """Show sizes in ``print(module)``."""
        return f"{self.d_model}, {self.height}, {self.width}, conditioning={self.conditioning!r}"
