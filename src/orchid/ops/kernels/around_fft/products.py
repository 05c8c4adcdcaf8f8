"""Launches on the frequency side: products with the kernels' spectra, and their gradients."""

from torch import Tensor

from orchid.ops.kernels.around_fft.spectra import mix_grad_kernel, mix_kernel
from orchid.ops.kernels.launch import cdiv
from orchid.ops.kernels.operands import block_of
from orchid.ops.transforms import inverse_complex_dft

# Pairs of bins a program takes at a time, in the forward and in the backward pass.
BIN_BLOCK, BIN_GRAD_BLOCK = 256, 128
# Programs wanted in a launch whose programs sum: enough to fill a large GPU.
PROGRAMS = 2048
# The last axis of a launch has no more programs than this.
MOST_GROUPS = 65535


def write_products(
    spectra: Tensor,
    static: Tensor,
    delta: Tensor,
    spectral: Tensor,
    out: Tensor,
    first: int,
    scale: float,
    *,
    kept: bool,
    mirrored: bool = False,
) -> None:
    """Write C / n = h_f A / n, (pairs, B, n, 2).

    Args:
        spectra: (pairs, B, 1 + sides, n, 2), of a and the conditioning sequences.
        static: T h0 (pairs, n, 2) or, ``kept``, h0_f (D, n / 2 + 1, 2).
        delta: (D,).
        spectral: (D, K), taps of Conv1d_f; not read without sides.
        out: (pairs, B, n, 2).
        first: the first channel.
        scale: of the conditioning network's transform.
        kept: see ``static``.
        mirrored: whether rows are (``Operands``).
    """
    pairs, batch, rows, n, _ = spectra.shape
    bins = block_of(n + 2, BIN_BLOCK)
    blocks = cdiv(n // 2 + 1, bins)
    groups = groups_of(batch, pairs * blocks)
    mix_kernel[(pairs, blocks, groups)](
        spectra, static, delta, spectral, out, first, delta.shape[0], batch, n, scale / 2, 0.25 / n,
        KEPT=kept, **_kind(mirrored, scale), group=batch // groups, SIDES=rows - 1, K=spectral.shape[1],
        BLOCK=bins, num_warps=warps_of(bins),
    )  # fmt: skip


def write_product_gradients(
    spectra: Tensor,
    static: Tensor,
    delta: Tensor,
    spectral: Tensor,
    out: Tensor,
    first: int,
    scale: float,
    *,
    kept: bool,
    mirrored: bool = False,
) -> tuple[Tensor, Tensor]:
    """Write the spectra of da, of the conditioning sequences' gradients and, where ``out`` has a row for it, of c.

    ``spectra`` (pairs, B, 2 + sides, n, 2) ends with that of dc. Returns the gradient of h0 in time (pairs, n, 2) and
    what programs give to that of the spectral taps (parts, 2 pairs, K), ``mirrored`` also of delta (..., K + 1).
    """
    pairs, batch, rows, n, _ = spectra.shape
    sides, taps, bins = rows - 2, spectral.shape[1], block_of(n + 2, BIN_GRAD_BLOCK)
    blocks = cdiv(n // 2 + 1, bins)
    groups = groups_of(batch, pairs * blocks)
    dstatic = spectra.new_empty((groups, pairs, n, 2))
    partial = spectra.new_empty((groups, blocks, pairs, 2, taps + mirrored))
    mix_grad_kernel[(pairs, blocks, groups)](
        spectra, static, delta, spectral, out, dstatic, partial,
        first, delta.shape[0], batch, n, scale / 2, 0.25 / n,
        KEPT=kept, **_kind(mirrored, scale), group=batch // groups, SIDES=sides, K=taps, WITH_C=out.shape[2] == rows,
        BLOCK=bins, num_warps=max(1, bins // 32),
    )  # fmt: skip
    in_time = inverse_complex_dft(dstatic.sum(dim=0) if groups > 1 else dstatic[0])
    return in_time, partial.view(groups * blocks, 2 * pairs, -1)


def _kind(mirrored: bool, scale: float) -> dict[str, bool]:
    """Return what rows are: mirrored, and of an orthonormal transform."""
    return {"MIRRORED": mirrored, "LOW": mirrored and scale != 1.0}


def wanted_groups(batch: int, programs: int) -> int:
    """Return how many groups the samples should fall into, so that there are PROGRAMS or so."""
    return min(batch, max(1, PROGRAMS // programs), MOST_GROUPS)


def groups_of(batch: int, programs: int) -> int:
    """Return how many groups of as many samples these fall into, so that there are PROGRAMS or so, or more."""
    least = wanted_groups(batch, programs)
    divisors = [d for d in range(1, min(batch, MOST_GROUPS) + 1) if batch % d == 0]
    return next((d for d in divisors if d >= least), divisors[-1])


def warps_of(block: int) -> int:
    """Return how many warps take a block."""
    return max(1, min(4, block // 64))
