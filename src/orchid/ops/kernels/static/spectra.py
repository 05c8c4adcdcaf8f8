"""The static kernel's launches: its spectrum, and the gradients of its network's last layer, chunk by chunk."""

from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, power_of_two
from orchid.ops.kernels.operands import Static
from orchid.ops.kernels.static.kernels import static_grad_kernel, static_kernel
from orchid.ops.kernels.totals import added_up
from orchid.ops.transforms import complex_dft

# Pairs of channels and lags a program takes at a time.
STATIC_PAIRS, LAG_BLOCK = 16, 64
# Programs that share a block of lags are no more than this, all blocks together.
PROGRAMS = 512


def static_spectra(given: Static, first: int, last: int) -> Tensor:
    """Return T h0 of channels first ... last - 1, (pairs, row, 2)."""
    rows = given.delta.new_empty(((last - first + 1) // 2, given.row, 2), dtype=torch.float32)
    return complex_dft(write_static(given, first, last, rows))


def write_static(given: Static, first: int, last: int, rows: Tensor) -> Tensor:
    """Write h0 of channels first ... last - 1: two channels a complex row, (pairs, row, 2), or (channels, n)."""
    hidden, output = given.hidden, given.output
    assert hidden is not None and output is not None
    blocks = cdiv(given.n, LAG_BLOCK), cdiv((last - first + 1) // 2, STATIC_PAIRS)
    static_kernel[blocks](
        hidden, output, rows, first, last, given.n, rows.shape[1], hidden.shape[1], *given.decay,
        COMPLEX=rows.ndim == 3, MIRRORED=given.mirrored, **_sizes(given, hidden),
    )  # fmt: skip
    return rows


def static_of(given: Static, spectra: Tensor, first: int, last: int) -> Tensor:
    """Return h0_f of a frozen kernel, or T h0 of channels first ... last - 1: of ``spectra``, unless that is empty."""
    if given.kept is not None:
        return given.kept
    return spectra[first // 2 : (last + 1) // 2] if spectra.numel() else static_spectra(given, first, last)


class StaticGradients:
    """The gradients of hidden (n, W), output (D, W) and delta (D,), added up over chunks of ``step`` channels.

    The first two are empty where the static kernel is kept, the third zero.
    """

    def __init__(self, given: Static, step: int) -> None:
        hidden, output, delta = given.hidden, given.output, given.delta
        self._given, self._lags, self._begun = given, cdiv(given.n, LAG_BLOCK), False
        self._splits = max(1, min(step // (2 * STATIC_PAIRS), PROGRAMS // self._lags))
        self._hidden = delta.new_empty(0) if hidden is None else hidden.new_empty((self._splits, *hidden.shape))
        self._output = delta.new_empty(0) if output is None else torch.empty_like(output)
        self._delta = torch.zeros_like(delta) if hidden is None else torch.empty_like(delta)

    def add(self, first: int, last: int, rows: Tensor, ddelta: Tensor | None = None) -> None:
        """Add what channels first ... last - 1 give.

        rows are the gradients of their kernels in time: two channels a complex row, (pairs, row, 2), or (channels, n).
        ddelta are those of their taps delta, where these are no lag of the kernel.
        """
        given, hidden = self._given, self._given.hidden
        if hidden is None:
            return
        pairs = (last - first + 1) // 2
        shares = rows.new_empty((self._lags, last - first, hidden.shape[1]))
        static_grad_kernel[(self._lags, self._splits)](
            rows, hidden, given.output, self._hidden, shares, self._delta,
            first, last, given.n, rows.shape[1], hidden.shape[1], *given.decay,
            steps=cdiv(pairs, STATIC_PAIRS * self._splits),
            COMPLEX=rows.ndim == 3, TAP=ddelta is None, FIRST=not self._begun, **_sizes(given, hidden),
        )  # fmt: skip
        if ddelta is not None:
            self._delta[first:last] = ddelta[: last - first]
        self._begun = True
        added_up(shares, self._output[first:last])

    def total(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the three gradients."""
        hidden = self._hidden
        if self._begun:
            hidden = added_up(hidden, torch.empty_like(hidden[0])) if self._splits > 1 else hidden.squeeze(0)
        return hidden, self._output, self._delta


def _sizes(given: Static, hidden: Tensor) -> dict[str, Any]:
    precision = "tf32" if given.half else "tf32x3"
    width = power_of_two(max(16, hidden.shape[1]))
    return {"PRECISION": precision, "WIDTH": width, "PAIRS": STATIC_PAIRS, "BLOCK": LAG_BLOCK}
