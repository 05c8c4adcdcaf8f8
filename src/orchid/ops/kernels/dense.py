"""The layer at short lengths in one kernel: the DFT as one matrix product, many rows a program.

With C[t, k] = cos(2 pi t k / n) / sqrt(n) and S likewise with sines, k = 0 ... n / 2 - 1, a spectrum is x C - i x S.
The sines' first column would be zero; it holds Nyquist's alternating signs instead, so that n / 2 columns of each are
the whole half spectrum. The frequency Conv1d reads its neighbours by products with shift matrices, which are exact. The
inverse is the same two matrices transposed, with bins that have a mirror image counted twice. Operands are float16,
each row scaled by its largest value, sums are float32. Reads three streams, writes one, and nothing else.
"""

import math
from functools import lru_cache

import torch
import triton
from torch import Tensor

from orchid.ops.kernels.dense_kernels import dense_kernel
from orchid.ops.kernels.operands import Operands

LENGTHS = (32, 64, 128, 256)
TAPS = 3
ROWS = {32: 64, 64: 64, 128: 32, 256: 16}


@lru_cache(maxsize=16)
def tables(n: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return cosines and sines (n, n / 2) and the two shifts (2, n / 2, n / 2), float16, made once."""
    t, k = torch.arange(n, dtype=torch.float64)[:, None], torch.arange(n // 2, dtype=torch.float64)
    angle = 2 * math.pi * t * k / n
    sines = angle.sin()
    sines[:, 0] = 1 - 2 * (t[:, 0] % 2)
    ones = torch.ones(n // 2 - 1, dtype=torch.float64)
    shifts = torch.stack((torch.diag(ones, 1), torch.diag(ones, -1)))  # m[k - 1], m[k + 1]
    cosines, sines = angle.cos() / math.sqrt(n), sines / math.sqrt(n)
    cosines, sines, shifts = (matrix.to(device, torch.float16).contiguous() for matrix in (cosines, sines, shifts))
    return cosines, sines, shifts


def serves(n: int, taps: int, sides: int, dtype: torch.dtype) -> bool:
    """Return whether this kernel takes a layer: bfloat16 (as ``four_step`` says), LENGTHS, three taps, not "cross"."""
    return n in LENGTHS and taps == TAPS and sides <= 1 and dtype == torch.bfloat16


def convolve(given: Operands) -> Tensor:
    """Return y (B, D, L): the forward pass of ``mix``."""
    p, source, n, count = given.p, given.source, given.n, ROWS[given.n]
    y = p.new_empty((given.batch, given.channels, given.length))
    dense_kernel[(triton.cdiv(given.rows, count),)](
        p, source, given.weight, given.bias, given.spatial, given.spectral,
        given.address(given.pad), given.address(given.source_pad), given.h0, *tables(n, p.device), y,
        given.rows, given.channels, given.length, source.shape[2], n, *p.stride(), *source.stride(), given.ortho_scale,
        SIDES=given.sides, **given.time(), HAS_U_PAD=given.source_pad is not None,
        PAIRED=given.in_pairs(), N=n, ROWS=count, num_warps=4 if n < 128 else 8,
    )  # fmt: skip
    return y
