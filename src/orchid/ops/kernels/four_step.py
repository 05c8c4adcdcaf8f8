"""The layer at moderate lengths with its transforms inside the kernels: DFTs as matrix products on tensor cores.

A row of n = N1 N2 samples, t = N2 t1 + t2, and its bins, k = k1 + N1 k2, are N1 x N2 tiles; w_m = exp(-2 pi i / m):

    X[k1, k2] = sum_t2 w_N2^(t2 k2) { w_n^(t2 k1) sum_t1 w_N1^(t1 k1) x[t1, t2] } / sqrt(n):

a product from the left, a twiddle, a product from the right. The row is real, so rows k1 = 0 ... H of the tile,
H = N1 / 2, hold every pair of mirrored bins. Rows below H are the main tile. Row H is the odd one: its first product is
an alternating sum, its twiddle and second product are one matrix, exp(-i pi t2 (2 k2 + 1) / N2).

Two kernels. The first makes s_1 * v and Conv1d_t(u), transforms both, and writes the spectrum of one and the magnitude
of the other to scratch. The second reads them with their neighbours (the frequency Conv1d), adds h0_f, multiplies,
transforms back and applies the output gate. Operands of the products and the scratch are float16, scaled
by the largest value of their row, so that no magnitude overflows; sums are float32.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from orchid.ops.kernels.four_step_kernels import convolve_kernel, spectra_kernel
from orchid.ops.kernels.operands import Operands

# n: (N1, N2). The first product has H = N1 / 2 rows; no factor may be below 16.
SPLITS = {512: (32, 16), 1024: (64, 16), 2048: (64, 32), 4096: (128, 32), 8192: (128, 64)}
TAPS = 3


class Tables(NamedTuple):
    """The matrices of a split, on a device.

    Attributes:
        left: (2, H, N1) float16, cosines and sines of 2 pi k1 t1 / N1, over sqrt(N1).
        right: (2, N2, N2) float16, of 2 pi t2 k2 / N2, over sqrt(N2).
        twiddle: (2, H, N2) float32, of 2 pi k1 t2 / n.
        odd: (2, N2, N2) float32, [t2, k2], of pi t2 (2 k2 + 1) / N2, over sqrt(N2).
        order: ((H + 1) N2,) int64, the half-spectrum bin of every entry of the tile, and
        conjugate: likewise bool, whether the entry is its complex conjugate.
    """

    left: Tensor
    right: Tensor
    twiddle: Tensor
    odd: Tensor
    order: Tensor
    conjugate: Tensor


@lru_cache(maxsize=16)
def tables(n: int, device: torch.device) -> Tables:
    """Return the tables of length n, made once."""
    n1, n2 = SPLITS[n]
    half = n1 // 2
    k1, t1 = torch.arange(half, dtype=torch.float64)[:, None], torch.arange(n1, dtype=torch.float64)
    k2, t2 = torch.arange(n2, dtype=torch.float64), torch.arange(n2, dtype=torch.float64)[:, None]
    angles = (
        2 * math.pi * k1 * t1 / n1,
        2 * math.pi * t2 * k2 / n2,
        2 * math.pi * k1 * t2.T / n,
        math.pi * t2 * (2 * k2 + 1) / n2,
    )
    scales = (n1**-0.5, n2**-0.5, 1.0, n2**-0.5)
    kinds = (torch.float16, torch.float16, torch.float32, torch.float32)
    left, right, twiddle, odd = (
        (torch.stack((angle.cos(), angle.sin())) * scale).to(device, kind).contiguous()
        for angle, scale, kind in zip(angles, scales, kinds, strict=True)
    )
    k = torch.arange(half + 1)[:, None] + n1 * torch.arange(n2)
    k = k.flatten().to(device)
    return Tables(left, right, twiddle, odd, torch.minimum(k, n - k), k > n // 2)


def tile_order(h0: Tensor, n: int) -> Tensor:
    """Return the half spectrum h0 (D, F, 2) in the tiles' order, (D, (H + 1) N2, 2)."""
    table = tables(n, h0.device)
    tile = h0[:, table.order]
    return torch.stack((tile[..., 0], torch.where(table.conjugate, -tile[..., 1], tile[..., 1])), dim=-1)


def serves(n: int, taps: int, sides: int, dtype: torch.dtype) -> bool:
    """Return whether these kernels take a layer: bfloat16, the lengths of SPLITS, three taps, not "cross".

    Float16 operands err less than bfloat16 inputs and outputs, but not less than float16 ones: those, and float32, go
    through the library's FFT.
    """
    return n in SPLITS and taps == TAPS and sides <= 1 and dtype == torch.bfloat16


def convolve(given: Operands) -> Tensor:
    """Return y (B, D, L): the forward pass of ``mix``."""
    p, source, n, rows, sides = given.p, given.source, given.n, given.rows, given.sides
    (n1, n2), table = SPLITS[n], tables(n, p.device)
    spectrum = p.new_empty((rows, 2, n1 // 2 + 1, n2), dtype=torch.float16)
    magnitude = p.new_empty((rows, n1 // 2 + 1, n2) if sides else (1,), dtype=torch.float16)
    scales = p.new_empty((rows, 2), dtype=torch.float32)
    y = p.new_empty((given.batch, given.channels, given.length))
    matrices, pad = (table.left, table.right, table.twiddle, table.odd), given.address(given.pad)
    constants = {
        "PAIRED": given.in_pairs(), "SIDES": sides, **given.time(),
        "N1": n1, "N2": n2, "ROOT": n1**-0.5, "num_warps": max(1, min(8, n1 // 32)),
    }  # fmt: skip
    spectra_kernel[(rows,)](
        p, source, given.weight, given.bias, given.spatial, pad, given.address(given.source_pad), *matrices,
        spectrum, magnitude, scales, given.channels, given.length, source.shape[2], n, *p.stride(), *source.stride(),
        given.ortho_scale, HAS_U_PAD=given.source_pad is not None, **constants,
    )  # fmt: skip
    convolve_kernel[(rows,)](
        p, given.weight, given.bias, pad, tile_order(given.h0, n), given.spectral, spectrum, magnitude, scales,
        *matrices, y, given.channels, given.length, n, *p.stride(), **constants,
    )  # fmt: skip
    return y
