"""The conditioning networks hx_f(u): a kernel spectrum computed from a sequence, blind to its circular shifts."""

import torch
from torch import Tensor, nn

from orchid.nn.parameters import Parameters
from orchid.nn.short_conv import ShortConv, unit_gain_
from orchid.ops.depthwise import depthwise_conv_bins
from orchid.ops.precision import at_least_float32, full_precision
from orchid.ops.spectral_conv import cross_spectrum, phase_spectrum
from orchid.ops.transforms import Transform


class SpatialConv(nn.ModuleList):
    """A stack of short convolutions in time, re-masked after each; none at all is the identity."""

    def __init__(self, layers: int, channels: int, max_length: int, kernel_size: int, padding: str) -> None:
        # No bias: the projection in front has one already.
        super().__init__(
            ShortConv(channels, max_length, kernel_size, padding=padding, bias=False) for _ in range(layers)
        )

    def taps(self) -> list[Tensor]:
        """Return the taps (D, K) of every layer."""
        return [layer.weight for layer in self if isinstance(layer, ShortConv)]

    def forward(self, u: Tensor, pad: Tensor | None = None) -> Tensor:
        """Convolve u (B, D, L), layer after layer."""
        for layer in self:
            u = layer(u, pad)
        return u


class SpectralConv(nn.Module):
    """A stack of depthwise convolutions over spectral bins, zero padded, with real taps; none is the identity.

    No bias: a constant added to the spectrum is the delta tap, which the static kernel has.
    """

    def __init__(self, layers: int, channels: int, kernel_size: int) -> None:
        super().__init__()
        self.weights = Parameters(torch.empty(channels, kernel_size) for _ in range(layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw taps of unit gain."""
        for taps in self.weights:
            unit_gain_(taps)

    def forward(self, z: Tensor) -> Tensor:
        """Convolve z (B, D, F), real or complex."""
        for taps in self.weights():
            z = depthwise_conv_bins(z, at_least_float32(taps))
        return z


class PhaseConditioning(nn.Module):
    """Type I, phase suppression (eq. adaconv1): hx_f = Conv1d_f(|T(Conv1d_t(u))|).

    A circular shift of u turns the phase of T u and leaves its magnitude, so the kernel does not change.

    Args:
        spatial: Conv1d_t, layers in time.
        spectral: Conv1d_f, layers over bins.
        n: transform length.
        transform: T.
        norm: scaling of T here, "ortho" or "backward".
    """

    def __init__(
        self, spatial: SpatialConv, spectral: SpectralConv, *, n: int, transform: Transform, norm: str
    ) -> None:
        super().__init__()
        self.spatial, self.spectral = spatial, spectral
        self.n, self.transform, self.norm = n, transform, norm

    def forward(self, u: Tensor, pad: Tensor | None = None) -> Tensor:
        """Return hx_f (B, D, F), real, of u (B, D, L)."""
        g = self.spatial(u, pad)
        with full_precision(u):
            return self.spectral(phase_spectrum(g, n=self.n, transform=self.transform, norm=self.norm))


class CrossConditioning(nn.Module):
    """Type II, cross-correlation (eq. adaconv2_nonlinearity): hx_f = Conv1d_f(conj(T k(u)) * sigma(T q(u))).

    k and q are Conv1d layers in time; a shift of u turns the phases of T k and T q alike and their product keeps
    none of it. With k = q it is |T k|^2.

    Args:
        key: k, layers in time.
        query: q, layers in time.
        spectral: Conv1d_f, layers over bins.
        n: transform length.
        transform: T.
        norm: scaling of T here, "ortho" or "backward".
        sigma: the nonlinearity on the magnitude of T q.
    """

    def __init__(
        self,
        key: SpatialConv,
        query: SpatialConv,
        spectral: SpectralConv,
        *,
        n: int,
        transform: Transform,
        norm: str,
        sigma: str,
    ) -> None:
        super().__init__()
        self.key, self.query, self.spectral = key, query, spectral
        self.n, self.transform, self.norm, self.sigma = n, transform, norm, sigma

    def forward(self, u: Tensor, pad: Tensor | None = None) -> Tensor:
        """Return hx_f (B, D, F), complex for the DFT, of u (B, D, L)."""
        k, q = self.key(u, pad), self.query(u, pad)
        with full_precision(u):
            h_f = cross_spectrum(k, q, n=self.n, transform=self.transform, norm=self.norm, sigma=self.sigma)
            return self.transform.real_edges(self.spectral(h_f), self.n)
