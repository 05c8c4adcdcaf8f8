"""What every launch of the fused layer reads: its tensors, its sizes, and what kernels are specialised on."""

import math
from typing import Any, NamedTuple

from torch import Tensor


class Operands(NamedTuple):
    """The arguments of ``mix.fused_mix`` as the kernels take them.

    Attributes:
        p: (B, 3 D, L), the projected streams.
        u: (B, D, M), the conditioning sequence; None is the first third of p.
        pad: (B, L) bool or None.
        u_pad: (B, M) bool or None, beside ``u``.
        weight: (3 D, K) float32.
        bias: (3 D,) float32.
        spatial: (sides, D, K) float32.
        spectral: (D, K) float32.
        h0: (D, n / 2 + 1, 2) float32.
        n: transform length and period of the circle.
        padding: of the short convolutions.
        scale: of the conditioning network's transform, relative to the unscaled one.
    """

    p: Tensor
    u: Tensor | None
    pad: Tensor | None
    u_pad: Tensor | None
    weight: Tensor
    bias: Tensor
    spatial: Tensor
    spectral: Tensor
    h0: Tensor
    n: int
    padding: str
    scale: float

    @property
    def batch(self) -> int:
        """B."""
        return self.p.shape[0]

    @property
    def channels(self) -> int:
        """D."""
        return self.p.shape[1] // 3

    @property
    def rows(self) -> int:
        """Pairs of batch and channel."""
        return self.batch * self.channels

    @property
    def length(self) -> int:
        """L."""
        return self.p.shape[2]

    @property
    def bins(self) -> int:
        """F, the bins of a half spectrum."""
        return self.n // 2 + 1

    @property
    def sides(self) -> int:
        """Conditioning sequences: 0 (static), 1 (phase) or 2 (cross)."""
        return self.spatial.shape[0]

    @property
    def taps(self) -> int:
        """K."""
        return self.weight.shape[1]

    @property
    def source(self) -> Tensor:
        """What conditions the kernel: u, or p, whose first third it is."""
        return self.p if self.u is None else self.u

    @property
    def source_pad(self) -> Tensor | None:
        """The pad of the source."""
        return self.pad if self.u is None else self.u_pad

    @property
    def shift(self) -> int:
        """How far the taps reach into the future."""
        return self.taps // 2 if self.padding == "same" else 0

    @property
    def ortho_scale(self) -> float:
        """The scale relative to the orthonormal transform."""
        return self.scale * math.sqrt(self.n)

    def time(self) -> dict[str, Any]:
        """Return the constants of the kernels in time."""
        return {"SHIFT": self.shift, "CIRCULAR": self.padding == "circular", "HAS_PAD": self.pad is not None}

    def address(self, tensor: Tensor | None) -> Tensor:
        """Return a tensor whose address the kernel may ignore where there is none."""
        return self.p if tensor is None else tensor

    def in_pairs(self) -> bool:
        """Return whether two positions can be read as one 32-bit word: even contiguous rows, causal taps, no masks."""
        sizes = (self.length, *self.p.stride()[:2], self.p.storage_offset())
        plain = self.u is None and self.pad is None and self.shift == 0 and self.p.stride(2) == 1
        return plain and not any(size % 2 for size in sizes)
