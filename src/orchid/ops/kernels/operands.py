"""What every launch of the fused layer reads: its tensors, its sizes, and what kernels are specialised on."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, power_of_two


class Decay(NamedTuple):
    """The decay of the static kernel, scale exp(fall |lag| unit / (span + slope d)): ``ImplicitFilter`` has it."""

    unit: float
    span: float
    slope: float
    fall: float
    scale: float


class Static(NamedTuple):
    """The static kernel, as its launches take it.

    Attributes:
        hidden: (n, W) float32, its network before the output, or None beside ``kept``.
        output: (D, W).
        delta: (D,).
        kept: (D, n / 2 + 1, 2) float32, its spectrum, delta included, where it is kept.
        n: number of lags.
        decay: its decay.
        half: whether what it is convolved with has bfloat16's precision.
        mirrored: whether rows have the lags once more, backwards: see ``Operands``.
    """

    hidden: Tensor | None
    output: Tensor | None
    delta: Tensor
    kept: Tensor | None
    n: int
    decay: Decay
    half: bool
    mirrored: bool = False

    @property
    def row(self) -> int:
        """The length of its rows."""
        return 2 * self.n if self.mirrored else self.n


class Operands(NamedTuple):
    """The arguments of ``mix.fused_mix`` as the kernels take them: contiguous, but for p and u; any floating dtype.

    Attributes:
        p: (B, 3 D, L), the projected streams without their bias.
        u: (B, D, M), the conditioning sequence, likewise; None is the first third of p.
        pad: (B, L) uint8 or None.
        u_pad: (B, M) uint8 or None, beside ``u``.
        offset: (3 D,), the projection's bias.
        weight: (3 D, K).
        bias: (3 D,).
        spatial: (sides, D, K).
        spectral: (D, K).
        hidden: (n, W) float32, the static kernel's network before its output, or None beside ``static``.
        output: (D, W).
        delta: (D,).
        static: (D, n / 2 + 1, 2) float32, the static kernel's spectrum, delta included, where it is kept.
        n: length of the rows that are transformed.
        period: of the circle.
        padding: of the short convolutions.
        scale: of the conditioning network's transform, relative to the unscaled one.
        decay: of the static kernel.
        mirrored: whether the second half of a row is the first backwards: its DFT is then the DCT-II of that first
            half, but for a factor and a phase, X[k] = 2 exp(i pi k / n) sum_t x[t] cos(pi k (2 t + 1) / n).
    """

    p: Tensor
    u: Tensor | None
    pad: Tensor | None
    u_pad: Tensor | None
    offset: Tensor
    weight: Tensor
    bias: Tensor
    spatial: Tensor
    spectral: Tensor
    hidden: Tensor | None
    output: Tensor | None
    delta: Tensor
    static: Tensor | None
    n: int
    period: int
    padding: str
    scale: float
    decay: Decay
    mirrored: bool

    @property
    def batch(self) -> int:
        """B."""
        return self.p.shape[0]

    @property
    def channels(self) -> int:
        """D."""
        return self.p.shape[1] // 3

    @property
    def length(self) -> int:
        """L."""
        return self.p.shape[2]

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
    def kernel(self) -> Static:
        """The static kernel."""
        half, lags = self.p.dtype == torch.bfloat16, self.n // 2 if self.mirrored else self.n
        return Static(self.hidden, self.output, self.delta, self.static, lags, self.decay, half, self.mirrored)

    def address(self, tensor: Tensor | None) -> Tensor:
        """Return a tensor whose address the kernel may ignore where there is none."""
        return self.p if tensor is None else tensor

    def pad_words(self) -> Tensor | None:
        """Return the pad as 16-bit numbers, for kernels that make operands of products.

        From the narrowest type that a product's operand depends on, masks included, the compiler concludes in which
        order threads hold it. With eight bits it wants more than sixteen rows, and is wrong where there are no more
        (Triton 3.6).
        """
        return None if self.pad is None else self.pad.to(torch.int16)

    def time(self) -> dict[str, Any]:
        """Return the constants of the kernels in time."""
        shift = self.taps // 2 if self.padding == "same" else 0
        return {"K": self.taps, "SHIFT": shift, "CIRCULAR": self.padding == "circular"}

    def in_pairs(self, *rows: Tensor) -> bool:
        """Return whether two positions of these tensors can be read as one 32-bit word: even contiguous 16-bit rows."""
        wraps = self.padding == "circular" and self.period % 2
        return not wraps and all(
            t.dtype in (torch.bfloat16, torch.float16)
            and t.stride(2) == 1
            and not any(size % 2 for size in (t.shape[2], *t.stride()[:2], t.storage_offset()))
            for t in rows
        )

    def in_octets(self, *rows: Tensor) -> bool:
        """Return whether eight positions of these tensors can be one vector: contiguous rows of whole octets."""
        return self.period % 8 == 0 and in_octets(*rows)


def in_octets(*rows: Tensor) -> bool:
    """Return whether rows (B, D, L) are contiguous and of whole octets."""
    return all(
        t.stride(2) == 1 and not any(size % 8 for size in (t.shape[2], *t.stride()[:2], t.storage_offset()))
        for t in rows
    )


def block_of(length: int, most: int) -> int:
    """Return a power of two of pairs of positions, at most ``most``, not many more than the length has."""
    return min(most, power_of_two(max(32, cdiv(length, 2))))
