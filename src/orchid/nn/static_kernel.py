"""The static kernel h0: an implicit filter with a delta tap."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from orchid.nn.implicit_filter import ImplicitFilter
from orchid.ops.precision import at_least_float32, full_precision
from orchid.ops.transforms import Transform


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

    def __init__(
        self, d_model: int, n: int, *, transform: Transform, embedding: int, width: int, grid: float | None
    ) -> None:
        super().__init__()
        self.transform = transform
        self.filter = ImplicitFilter(d_model, n, embedding=embedding, width=width, grid=grid)
        self.delta = nn.Parameter(torch.empty(d_model))
        self._kept: Tensor | None = None
        self._kept_parts: Tensor | None = None
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
