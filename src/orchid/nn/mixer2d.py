"""The mixer of images: Orchid's operator with transforms, short convolutions and kernels in two dimensions."""

import math
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.nn.fused import BACKENDS, fused_hidden, image_settings_obstacle, takes_kernels
from orchid.nn.implicit_filter2d import ImplicitFilter2d
from orchid.nn.projections import bias_of, from_channels, to_channels
from orchid.nn.short_conv import masked, unit_gain_
from orchid.ops.checks import (
    check_at_least,
    check_choice,
    check_context,
    check_dtype,
    check_fraction,
    check_image,
    check_image_mask,
    check_odd,
)
from orchid.ops.conv2d import conv_bins2d, depthwise_conv2d, real_kernel_spectrum
from orchid.ops.kernels.launch import interpreter_on
from orchid.ops.precision import at_least_float32, full_precision
from orchid.ops.transforms import dft2, inverse_dft2

SIDES = {"phase": 1, "cross": 2, "static": 0}  # conditioning images


class Streams2d(NamedTuple):
    """What stands between the projections: (B, D, H, W) each, pads (B, 1, H, W), True at masked pixels.

    Attributes:
        v: the short-convolved v.
        s1: the gate before the convolution.
        s2: the gate after it.
        u: what conditions the kernel, as projected.
        u_pad: its pad, or None.
    """

    v: Tensor
    s1: Tensor
    s2: Tensor
    u: Tensor
    u_pad: Tensor | None


class OrchidMixer2d(nn.Module):
    """y = out(s_2 * T^-1((h0_f + hx_f(v)) * T(s_1 * v))), with T the orthonormal DFT of both axes of an image.

    v, s_1, s_2 are projections of x, each through a depthwise K x K convolution that wraps at the edges. The kernel is

        phase:  hx_f = Conv2d_f(|T Conv2d_t(v)|)            cross:  hx_f = Conv2d_f(conj(T k(v)) T q(v))

    and the static one an implicit filter with a delta tap. A circular shift of x in either axis shifts y alike: the
    magnitude, or the product of a spectrum with the conjugate of another, does not change. The paper names this
    operator as future work.

    The operator lives on a torus of H x W. A smaller image is one whose rest is masked, and masks are those of
    ``OrchidMixer``: what stands at a masked pixel, NaN included, reaches no valid output.

    Args:
        d_model: D.
        height: H, of the largest images.
        width: W.
        conditioning: "phase", "cross" or "static".
        kernel_size: K, odd.
        filter_embedding: of the implicit filter, a lag of one axis.
        filter_width: of the implicit filter.
        dropout: of the output.
        backend: "torch", "triton" (GPU kernels around the FFT, an error where they do not serve) or "auto" (the
            kernels on a CUDA device where they serve, else torch).

    Shape:
        x (B, H, W, D) or smaller, mask (B, H, W) bool or None -> as x.

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
        self.conditioning = check_choice("conditioning", conditioning, SIDES)
        self.kernel_size, self.filter_embedding, self.filter_width = kernel_size, filter_embedding, filter_width
        if check_odd("kernel_size", kernel_size) > 2 * min(height, width) + 1:
            raise ValueError(f"kernel_size={kernel_size} reaches around images of {height} x {width}")
        sides = SIDES[conditioning]
        self.in_proj, self.out_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
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

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Mix x along both axes.

        Args:
            x: (B, h, w, D), h <= H, w <= W.
            mask: (B, h, w) bool, True at real pixels, anywhere; None is all True.
            context: (B, h', w', D), the image that conditions the kernel in place of x.
            context_mask: likewise beside ``context``.

        Returns:
            (B, h, w, D).
        """
        check_image("x", x, self.d_model, (self.height, self.width))
        check_dtype("x", x, self.delta.dtype)
        alone = mask is None and context is None and context_mask is None
        whole = alone and x.shape[1:3] == (self.height, self.width)
        partial = None if whole else "the kernels do not support masks, contexts or smaller images"
        obstacle = self._obstacle or partial
        if takes_kernels(self.backend, obstacle, x, interpreted=interpreter_on()):
            y = self._fused_mix(to_channels(self.in_proj, x.flatten(1, 2), biased=False))
        else:
            y = self._mix(self._streams(x, mask, context, context_mask))
        y = from_channels(self.out_proj, y).unflatten(1, (self.height, self.width))
        return self.dropout(y[:, : x.shape[1], : x.shape[2]])

    def kernel(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the kernel h0 + hx, (B, D, H, W), real: lags of both axes, negative ones wrapped."""
        h_f = self._kernel_spectrum(self._streams(x, mask, context, context_mask))
        with full_precision(h_f):
            return inverse_dft2(h_f, (self.height, self.width)) / math.sqrt(self.height * self.width)

    def values(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the short-convolved v, (B, h, w, D)."""
        return self._streams(x, mask).v.permute(0, 2, 3, 1)[:, : x.shape[1], : x.shape[2]]

    def mixing_matrix(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        channel: int = 0,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Return A = diag(s_2) Conv(h) diag(s_1) of one channel, (B, h w, h w): pixels row by row.

        ``A @ values(x)[..., channel].flatten(1)`` is that channel before the output projection.
        """
        if check_at_least("channel", channel, 0) >= self.d_model:
            raise ValueError(f"channel={channel} must lie in 0 ... {self.d_model - 1}")
        streams = self._streams(x, mask, context, context_mask)
        h_f, (rows, columns) = self._kernel_spectrum(streams)[:, channel, None], x.shape[1:3]
        s1, s2 = (s[:, channel, :rows, :columns].flatten(1) for s in (streams.s1, streams.s2))
        with full_precision(h_f):
            impulses = torch.eye(self.height * self.width, device=x.device, dtype=h_f.real.dtype)
            impulses = impulses.unflatten(0, (self.height, self.width))[:rows, :columns].flatten(0, 1)
            responses = inverse_dft2(
                h_f * dft2(impulses.unflatten(1, (self.height, self.width))), (self.height, self.width)
            )  # (B, source, H, W)
        matrix = responses[:, :, :rows, :columns].flatten(2).transpose(1, 2).to(s1.dtype)
        return s2[:, :, None] * matrix * s1[:, None]

    @torch.no_grad()
    def resample(self, height: int, width: int) -> Self:
        """Return this layer for images of another size, the static kernel's grid stretched with them.

        As for ``OrchidMixer.resample``, the frequency taps then span other bandwidths: a starting point for training.
        """
        layer = type(self)(self.d_model, height, width, **self._options())
        layer.to(device=self.delta.device, dtype=self.delta.dtype)
        layer.load_state_dict(self.state_dict())
        for parameter, own in zip(layer.parameters(), self.parameters(), strict=True):
            parameter.requires_grad_(own.requires_grad)
        # the filter divides by sqrt(H W); a stretched one must divide by H W to keep its spectrum
        layer.filter.output.mul_(math.sqrt(self.height * self.width / (height * width)))
        return layer.train(self.training)

    def _fused_mix(self, projected: Tensor) -> Tensor:
        """Return what stands between the projections, (B, D, H W), of streams (B, 3 D, H W) without their bias."""
        from orchid.ops.kernels.images.operator import fused_image_mix

        with full_precision(projected):
            static = self.static_spectrum(fused_hidden(self.filter, half=projected.dtype == torch.bfloat16))
        return fused_image_mix(
            projected,
            bias_of(self.in_proj, projected),
            self.short_weight,
            self.short_bias,
            self.spatial,
            self.spectral,
            static,
            (self.height, self.width),
        )

    def _streams(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Streams2d:
        """Check, mask, project and short-convolve."""
        projected, pad = self._projected("x", x, "mask", mask)
        check_context(context, context_mask, x, self.conditioning)
        u, u_pad = projected[:, : self.d_model], pad
        if context is not None:
            u, u_pad = self._projected("context", context, "context_mask", context_mask, self.d_model)
        v, s1, s2 = masked(depthwise_conv2d(projected, self.short_weight, self.short_bias), pad).chunk(3, dim=1)
        return Streams2d(v, s1, s2, u, u_pad)

    def _projected(
        self, name: str, x: Tensor, mask_name: str, mask: Tensor | None, channels: int | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the streams of an image on the whole torus, (B, C, H, W), zero where it has no pixels, and its pad."""
        check_image(name, x, self.d_model, (self.height, self.width))
        check_image_mask(mask_name, mask, x)
        check_dtype(name, x, self.delta.dtype)
        rows, columns = self.height - x.shape[1], self.width - x.shape[2]
        pad = None
        if mask is not None or rows or columns:
            here = x.new_ones(x.shape[:3], dtype=torch.bool) if mask is None else mask
            x = F.pad(x.masked_fill(~here[..., None], 0.0), (0, 0, 0, columns, 0, rows))
            pad = ~F.pad(here, (0, columns, 0, rows))[:, None]
        projected = to_channels(self.in_proj, x.flatten(1, 2), channels).unflatten(2, (self.height, self.width))
        return masked(projected, pad), pad

    def _mix(self, streams: Streams2d) -> Tensor:
        """Return what stands between the projections, (B, D, H W)."""
        with full_precision(streams.v):
            a_f = dft2(at_least_float32(streams.s1 * streams.v))
            h_f = self.spectrum(streams.u, streams.u_pad)
            y = inverse_dft2(h_f * a_f, (self.height, self.width)).to(streams.s2.dtype)
        return (streams.s2 * y).flatten(2)

    def _kernel_spectrum(self, streams: Streams2d) -> Tensor:
        """Return h_f as (B, D, H, W / 2 + 1), also where it is the same for every image."""
        with full_precision(streams.u):
            return self.spectrum(streams.u, streams.u_pad).expand(streams.u.shape[0], -1, -1, -1)

    def static_spectrum(self, hidden: Tensor | None = None) -> Tensor:
        """Return h0_f, (D, H, W / 2 + 1); ``hidden`` as the filter takes it."""
        return dft2(self.filter(hidden), norm="backward") + at_least_float32(self.delta)[:, None, None]

    def spectrum(self, u: Tensor, pad: Tensor | None = None) -> Tensor:
        """Return h_f, (B, D, H, W / 2 + 1) conditioned on the projected u (B, D, H, W), (D, ...) where static.

        ``pad`` (B, 1, H, W) is True at masked pixels.
        """
        h0_f = self.static_spectrum()
        if self.conditioning == "static":
            return h0_f
        taps = at_least_float32(self.spectral)
        spectra = [dft2(at_least_float32(masked(depthwise_conv2d(u, w.to(u.dtype)), pad))) for w in self.spatial]
        if self.conditioning == "phase":
            hx_f = conv_bins2d(spectra[0].abs(), taps).to(h0_f.dtype)
        else:
            crossed = spectra[0].conj() * spectra[1]
            parts = [conv_bins2d(part, taps) for part in (crossed.real, crossed.imag)]
            hx_f = torch.view_as_complex(torch.stack(parts, dim=-1))  # torch.complex does not compile here
        return real_kernel_spectrum(h0_f + hx_f, self.width)

    def extra_repr(self) -> str:
        """Show sizes and options in ``print(module)``."""
        options = ", ".join(f"{name}={value!r}" for name, value in self._options().items())
        return f"{self.d_model}, {self.height}, {self.width}, {options}"

    def _options(self) -> dict[str, Any]:
        return {
            "conditioning": self.conditioning,
            "kernel_size": self.kernel_size,
            "filter_embedding": self.filter_embedding,
            "filter_width": self.filter_width,
            "dropout": self.dropout.p,
            "backend": self.backend,
        }
