"""The static kernel h0: a small network of the lag, as long as the sequence at no cost in parameters."""

import math
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn

from orchid.nn.parameters import Parameters
from orchid.ops.checks import check_at_least, check_odd, check_positive
from orchid.ops.spectral_conv import at_least_float32, full_precision
from orchid.ops.transforms import Transform

# Sine layers between the embedding and the output, and the initial frequency of all of them.
HIDDEN_LAYERS = 3
FREQUENCY = 3.0
# A channel's kernel falls to 1 % after this share of the half grid: from the slowest channel to the fastest.
SLOWEST, FASTEST = 1.5, 0.3
FALL = math.log(100)


class SineNetwork(nn.Module):
    """The FFN of an implicit filter: three linear layers with sines that share one learned vector of frequencies.

    A linear map to D channels without bias follows; what it is multiplied by is the filter's own.

    Args:
        d_model: D.
        inputs: size of the embedding of a lag.
        width: hidden size.
    """

    def __init__(self, d_model: int, inputs: int, width: int) -> None:
        super().__init__()
        self.d_model, self.width = check_at_least("d_model", d_model, 1), check_at_least("width", width, 1)
        sizes = [inputs, *[width] * HIDDEN_LAYERS]
        self.weights = Parameters(torch.empty(o, i) for i, o in pairwise(sizes))
        self.biases = Parameters(torch.empty(o) for o in sizes[1:])
        self.output = nn.Parameter(torch.empty(d_model, width))
        self.frequency = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw hidden weights and biases uniform in +-1 / sqrt(fan in), the output for unit variance."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)
        bound = math.sqrt(6 / self.width)  # a sine has variance 1/2
        nn.init.uniform_(self.output, -bound, bound)
        nn.init.constant_(self.frequency, FREQUENCY)

    def sines(self, z: Tensor) -> Tensor:
        """Return the network before its output, (n, width), of embedded lags (n, inputs)."""
        frequency = at_least_float32(self.frequency)
        # sin(f (W z + b)), with f on the small side: two passes over n x width instead of four, and one product for
        # all layers: on a GPU every small operation costs as much as a large one
        given = self.weights()
        weights = frequency[:, None] * at_least_float32(torch.cat(given, dim=1))
        biases = frequency * at_least_float32(torch.stack(self.biases()))
        for weight, bias in zip(weights.split([w.shape[1] for w in given], dim=1), biases, strict=True):
            z = torch.sin(torch.addmm(bias, z, weight.T))
        return z

    def hidden(self) -> Tensor:
        """Return the network before its output at all lags, (n, width)."""
        raise NotImplementedError

    def lags(self) -> tuple[list[int], list[float]]:
        """Return the number of lags of every axis, and a lag of one position in half grids."""
        raise NotImplementedError

    def spans(self) -> Tensor:
        """Return every channel's decay length in half grids, (D,)."""
        like = at_least_float32(self.output)
        return torch.linspace(SLOWEST, FASTEST, self.d_model, device=like.device, dtype=like.dtype)

    def signed_lags(self, n: int, grid: float) -> Tensor:
        """Return the lags of a circle of n in half grids, negative ones at its end, (n,)."""
        like = at_least_float32(self.output)
        ends = ((0, n - n // 2), (-(n // 2), 0))
        return torch.cat([torch.arange(*end, device=like.device, dtype=like.dtype) for end in ends]) * (2 / grid)


def embedded(tau: Tensor, size: int) -> Tensor:
    """Return PosEmb, (tau, cos(pi f tau), sin(pi f tau)) for f = 1 ... (size - 1) / 2: (n, size)."""
    bands = torch.arange(1, size // 2 + 1, device=tau.device, dtype=tau.dtype) * math.pi
    angle = tau[:, None] * bands
    return torch.cat((tau[:, None], angle.cos(), angle.sin()), dim=1)


class ImplicitFilter(SineNetwork):
    """h0[d, t] = FFN(PosEmb(t))[d] * decay_d(t) / sqrt(n) on the circle of n lags (remark in section 3.2).

    With tau the signed lag in half grids, tau(t) = 2 t / grid for 0 <= t < n / 2 and 2 (t - n) / grid above:

    1. PosEmb = (tau, cos(pi f tau), sin(pi f tau)), f = 1 ... (embedding - 1) / 2;
    2. FFN: three linear layers with sine activations that share one learned vector of frequencies, then a linear
       map to D channels without bias;
    3. decay_d = exp(-rate_d |tau|), two-sided: a bidirectional layer looks both ways alike.

    The factor 1 / sqrt(n) gives the kernel a norm, and so its spectrum a mean square, of order 1 at any length.
    There are no buffers: the grid is computed in float32 (float64 in a float64 module) whatever the module's dtype.

    Args:
        d_model: D.
        max_length: n, the number of lags.
        embedding: size of PosEmb, odd.
        width: hidden size of the FFN.
        grid: the length whose half is tau = 1; ``max_length`` unless the kernel was extended from a shorter one.

    Shape:
        () -> (D, n), negative lags wrapped to the end.

    Example:
        >>> ImplicitFilter(d_model=8, max_length=32)().shape
        torch.Size([8, 32])
    """

    def __init__(
        self, d_model: int, max_length: int, *, embedding: int = 5, width: int = 64, grid: float | None = None
    ) -> None:
        # The lag, and a cosine and a sine per frequency.
        super().__init__(d_model, check_odd("embedding", embedding), width)
        self.max_length, self.embedding = check_at_least("max_length", max_length, 1), embedding
        self.grid = float(max_length) if grid is None else check_positive("grid", grid)

    def forward(self) -> Tensor:
        """Return h0 (D, n), at least float32."""
        output = at_least_float32(self.output)
        with full_precision(output):
            decay = torch.exp(self._tau().abs() * (-FALL / self.spans()[:, None]))
            return (output / math.sqrt(self.max_length) @ self.hidden().T) * decay

    def hidden(self) -> Tensor:
        """Return the network before its output, (n, width)."""
        tau = self._tau()
        with full_precision(tau):
            return self.sines(embedded(tau, self.embedding))

    def lags(self) -> tuple[list[int], list[float]]:
        """Return n, and one position in half grids."""
        return [self.max_length], [2 / self.grid]

    def decay(self) -> tuple[float, float, float, float, float]:
        """Return unit, span, slope, fall, scale: decay_d / sqrt(n) = scale exp(fall |lag| unit / (span + slope d))."""
        slope = (FASTEST - SLOWEST) / max(1, self.d_model - 1)
        return 2 / self.grid, SLOWEST, slope, -FALL, 1 / math.sqrt(self.max_length)

    def _tau(self) -> Tensor:
        """Return the signed lags in half grids, (n,)."""
        return self.signed_lags(self.max_length, self.grid)

    def extra_repr(self) -> str:
        """Show sizes in ``print(module)``."""
        return f"{self.d_model}, {self.max_length}, embedding={self.embedding}, width={self.width}"


class StaticKernel(nn.Module):
    """The spectrum h0_f of an implicit filter with a delta tap: h0_f = T(h0) + delta.

    The tap lets a channel pass its input through at lag 0, which a smooth kernel cannot; a constant added to the
    spectrum is that tap under either transform.

    ``freeze()`` computes the spectrum once and keeps it, D F complex numbers, for a layer that only predicts.

    Args:
        d_model: D.
        n: transform length.
        transform: T.
        embedding: of the implicit filter.
        width: of the implicit filter.
        grid: of the implicit filter.
    """

    _kept_parts: Tensor | None = None  # of the class, too: modules pickled before there was one lack it

    def __init__(
        self, d_model: int, n: int, *, transform: Transform, embedding: int, width: int, grid: float | None
    ) -> None:
        super().__init__()
        self.transform = transform
        self.filter = ImplicitFilter(d_model, n, embedding=embedding, width=width, grid=grid)
        self.delta = nn.Parameter(torch.empty(d_model))
        self._kept: Tensor | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw small taps: a large one hides the kernel at the start."""
        nn.init.normal_(self.delta, std=0.1)

    def freeze(self) -> None:
        """Stop training the kernel and keep its spectrum; ``unfreeze``, loading weights and moving the module undo it.

        Explicit, because nothing tells of every update: neither a replayed CUDA graph nor one through ``.data``.
        """
        self.requires_grad_(False)
        self._forget()
        with torch.inference_mode(False), torch.no_grad():
            self._kept = self._spectrum()

    def unfreeze(self) -> None:
        """Forget the spectrum and train again."""
        self._forget()
        self.requires_grad_(True)

    def forward(self, *, in_time: bool = False) -> Tensor:
        """Return h0_f (D, F), at least float32; or ``in_time`` the kernel, (D, n), the DFT's delta tap at lag 0."""
        kept = self.kept
        if in_time:
            return self._kernel() if kept is None else self.transform.kernel(kept, self.filter.max_length)
        return self._spectrum() if kept is None else kept

    @property
    def kept(self) -> Tensor | None:
        """The spectrum of a frozen kernel, (D, F); one that is to be trained again, in whatever way, is not frozen."""
        if self._kept is not None and any(parameter.requires_grad for parameter in self.parameters()):
            self._forget()
        return self._kept

    @property
    def kept_parts(self) -> Tensor | None:
        """The same as real and imaginary parts of a DFT's bins, (D, F, 2), always one tensor; a DCT's F is n + 1."""
        kept = self.kept
        if kept is not None and self._kept_parts is None:
            with torch.inference_mode(False), torch.no_grad():
                self._kept_parts = torch.view_as_real(_complex_bins(kept))
        return self._kept_parts

    def _forget(self) -> None:
        self._kept, self._kept_parts = None, None

    def _apply(self, *arguments: Any, **keywords: Any) -> Self:
        self._forget()
        return super()._apply(*arguments, **keywords)

    def _load_from_state_dict(self, *arguments: Any, **keywords: Any) -> None:
        self._forget()
        super()._load_from_state_dict(*arguments, **keywords)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None, "_kept_parts": None}

    def _kernel(self) -> Tensor:
        h0: Tensor = self.filter()
        return torch.cat((h0[:, :1] + at_least_float32(self.delta)[:, None], h0[:, 1:]), dim=1)

    def _spectrum(self) -> Tensor:
        h0 = self.filter()
        with full_precision(h0):
            return self.transform.kernel_spectrum(h0) + at_least_float32(self.delta)[:, None]


def _complex_bins(spectrum: Tensor) -> Tensor:
    """Return a spectrum as the bins of a DFT: the n real ones of a DCT are bins 0 ... n - 1 of 2 n, and bin n is 0."""
    if spectrum.is_complex():
        return spectrum
    return torch.complex(nn.functional.pad(spectrum, (0, 1)), spectrum.new_zeros(()))
