"""Short rows: which inputs the one-kernel path serves, and its launches."""

from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.dense.backward import (
    dense_conditioning_grad_kernel,
    dense_grad_kernel,
    dense_static_grad_kernel,
)
from orchid.ops.kernels.dense.forward import dense_kernel
from orchid.ops.kernels.launch import cdiv, shared_memory
from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.tables import kept, waves

# Transform lengths, and the shared memory a program may need there on any architecture, in bytes.
SHARED = {64: 48 << 10, 128: 144 << 10}
# Columns of a spectrum that are worked on at a time.
BLOCK = 64
# Samples of a tile: the rows of a tensor core's product.
ROWS = 64
# Channels a program takes of the static kernel's gradient: the least rows of such a product.
CHANNELS = 16
# Fewer samples than this leave most of a tile empty.
LEAST_BATCH = 24
# Programs wanted in a launch.
PROGRAMS = 512


def serves(given: Operands, p: Tensor, dy: Tensor | None = None) -> bool:
    """Return whether short rows of p, and in the backward pass of dy, are served.

    They are bfloat16, in vectors of eight, conditioned on themselves.

    The products' operands have float16's precision: enough below bfloat16's to disappear in it, not below its own.
    """
    rows = (p,) if dy is None else (p, dy)
    return (
        given.n in SHARED
        and SHARED[given.n] <= shared_memory(given.p.device)
        and given.u is None
        and given.sides < 2
        and given.batch >= LEAST_BATCH
        and all(t.dtype == torch.bfloat16 for t in rows)
        and given.in_octets(*rows)
    )


def write(given: Operands, static: Tensor, y: Tensor) -> None:
    """Write y (B, D, L); ``static`` is h0_f of a frozen layer, or T h0 (pairs, n, 2)."""
    p, channels = given.p, given.channels
    steps, parts = _steps(given, channels)
    dense_kernel[(channels, parts)](
        p, given.offset, given.weight, given.bias, given.spatial, given.spectral, static, given.delta,
        tables(given.n, p.device), given.address(given.pad), y,
        channels, given.batch, given.length, given.period, given.scale, *p.stride()[:2], *y.stride()[:2],
        KEPT=given.static is not None, SIDES=given.sides, steps=steps, **_settings(given),
    )  # fmt: skip


def gradients(given: Operands, first: int, last: int, static: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a chunk of channels, from first to last - 1, gives to the gradients.

    Returns:
        (channels, 2 + sides, B, L): da, the gradient of the conditioning sequence, c; (channels, n): that of h0;
        (parts, channels, K): what programs give to that of the spectral taps.
    """
    p, n, batch, channels = given.p, given.n, given.batch, last - first
    steps, parts = _steps(given, channels)
    grads = p.new_empty((channels, 2 + given.sides, batch, given.length))
    dstatic = given.delta.new_empty((parts * steps, channels, n), dtype=torch.float32)
    partial = dstatic.new_empty((parts, channels, given.taps))
    spectra = p.new_empty((channels, batch, n // 2) if given.sides else 0, dtype=torch.float16)
    edges = dstatic.new_empty((channels, 2, batch) if given.sides else 0)
    both, pad, settings = tables(n, p.device), given.address(given.pad), _settings(given)
    dense_grad_kernel[(channels, parts)](
        p, dy, given.offset, given.weight, given.bias, given.spatial, given.spectral, static, given.delta,
        both, pad, grads, dstatic, spectra, edges,
        first, given.channels, batch, given.length, given.period, given.scale, *p.stride()[:2], *dy.stride()[:2],
        KEPT=given.static is not None, SIDES=given.sides, steps=steps, **settings,
    )  # fmt: skip
    if given.sides:
        dense_conditioning_grad_kernel[(channels, parts)](
            p, given.offset, given.bias, given.spatial, given.spectral, both, pad, spectra, edges, grads, partial,
            first, given.channels, batch, given.length, given.period, given.scale, *p.stride()[:2],
            steps=steps, **settings,
        )  # fmt: skip
    rows = dstatic.new_empty((channels, n))
    dense_static_grad_kernel[(cdiv(channels, CHANNELS),)](
        dstatic, both, rows, channels, parts * steps, N=n, CHANNELS=CHANNELS
    )
    return grads, rows, partial


def tables(n: int, device: torch.device) -> Tensor:
    """Return C[t, k] = cos(2 pi t k / n) and S[t, k] = -sin(2 pi t k / n), S[t, 0] = (-1)^t: (2, n, n / 2) float16."""
    return kept(("dense", n), device, lambda: _tables(n, device))


def _tables(n: int, device: torch.device) -> Tensor:
    both = waves(n, n // 2, n, device)
    both[1, :, 0] = 1 - 2 * (torch.arange(n, device=device) % 2)
    return both.half()


def _steps(given: Operands, channels: int) -> tuple[int, int]:
    """Return how many tiles a program goes through, and into how many parts the samples fall."""
    tiles = cdiv(given.batch, ROWS)
    parts = min(tiles, cdiv(PROGRAMS, channels))
    steps = cdiv(tiles, parts)
    return steps, cdiv(tiles, steps)


def _settings(given: Operands) -> dict[str, Any]:
    padded = given.pad is not None
    return {
        "FULL": given.length == given.n and not padded, "HAS_PAD": padded, "N": given.n, "ROWS": ROWS,
        "BLOCK": min(BLOCK, given.n // 2), **given.time(), "num_warps": 4, "num_stages": 1,
    }  # fmt: skip
