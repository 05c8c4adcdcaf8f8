"""Small images in products with matrices: which inputs they serve, and their launches."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from orchid.ops.kernels.images.dense.backward import (
    dense_image_conditioning_grad_kernel,
    dense_image_grad_kernel,
    dense_image_streams_grad_kernel,
)
from orchid.ops.kernels.images.dense.forward import dense_image_kernel
from orchid.ops.kernels.images.dense.matrices import dense_image_matrices_kernel, dense_image_totals_kernel
from orchid.ops.kernels.images.operands import Images
from orchid.ops.kernels.launch import cdiv, power_of_two, shared_memory
from orchid.ops.kernels.passes import by_channel
from orchid.ops.kernels.tables import kept

# Pixels, and bins of half a spectrum, of the largest images; the least operand of a product.
LARGEST, LEAST = 64, 16
# Samples of a tile: the rows of a tensor core's product. Fewer samples than the second leave most of a tile empty.
ROWS, LEAST_BATCH = 64, 24
# Programs wanted in a launch, each with sums of its own.
PROGRAMS = 512
# Bytes of shared memory a program may need on any architecture.
SHARED = 144 << 10
# Generations whose tensor cores keep results in registers.
FIRST, BEYOND = (8, 0), (10, 0)


class Matrices(NamedTuple):
    """Convolutions as matrices: see ``dense_image_matrices_kernel``; static is h0_f, (D, 2, N)."""

    convs: Tensor
    constants: Tensor
    bands: Tensor
    totals: Tensor
    static: Tensor


def serves(given: Images, dy: Tensor | None = None) -> bool:
    """Return whether images, and in the backward pass dy, are served: small ones of bfloat16, conditioned by |.|.

    The transforms' operands have float16's precision: enough below bfloat16's to disappear in it, not below its own.
    """
    streams = (given.p,) if dy is None else (given.p, dy)
    return (
        max(given.height * given.width, given.height * given.columns) <= LARGEST
        and given.sides < 2
        and given.batch >= LEAST_BATCH
        and all(t.dtype == torch.bfloat16 and t.stride(2) == 1 for t in streams)
        and _fits(given.p.device)
    )


def _fits(device: torch.device) -> bool:
    """Return whether a GPU has the room: shared memory, and no tensor memory, which would be too small."""
    if device.type != "cuda":
        return True
    return shared_memory(device) >= SHARED and FIRST <= torch.cuda.get_device_capability(device) < BEYOND


def write(given: Images, y: Tensor) -> None:
    """Write y (B, D, H W)."""
    p, (steps, parts) = given.p, _steps(given)
    dense_image_kernel[(given.channels, parts)](
        p, *_matrices(given), _tables(given), y, given.channels, given.batch, _scale(given),
        *p.stride()[:2], *y.stride()[:2], steps, SIDES=given.sides, **_settings(given),
    )  # fmt: skip


def gradients(given: Images, dy: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of p, offset, weight, bias, spatial, spectral and static."""
    p, channels, batch, sides, n = given.p, given.channels, given.batch, given.sides, _size(given)
    steps, parts = _steps(given)
    made, tables, settings = _matrices(given), _tables(given), _settings(given)
    grads = p.new_empty((2 + sides, channels, batch, p.shape[2]))
    spectra = p.new_empty((channels, batch, n) if sides else 0, dtype=torch.float16)
    dstatic = p.new_empty((parts, channels, 2, n), dtype=torch.float32)
    factors = dstatic.new_empty((channels, batch) if sides else 0)
    dense_image_grad_kernel[(channels, parts)](
        p, dy, *made, tables, grads, spectra, factors, dstatic, channels, batch, _scale(given),
        *p.stride()[:2], *dy.stride()[:2], steps, SIDES=sides, **settings,
    )  # fmt: skip
    dbands = dstatic.new_empty((parts, channels, n, n) if sides else 0)
    if sides:
        dense_image_conditioning_grad_kernel[(channels, parts)](
            p, *made[:4], tables, spectra, factors, grads, dbands, channels, batch, _scale(given),
            *p.stride()[:2], steps, **settings,
        )  # fmt: skip
    dp = by_channel(p, p.shape[1], p.shape[2])
    products = dstatic.new_empty((parts, 3 + sides, channels, n, n))
    sums = dstatic.new_empty((parts, 3 + sides, channels))
    for role in range(3):
        dense_image_streams_grad_kernel[(channels, parts)](
            p, dy, *made[:2], grads, dp, products, sums, channels, batch,
            *p.stride()[:2], *dy.stride()[:2], *dp.stride()[:2], steps, ROLE=role, SIDES=sides, **settings,
        )  # fmt: skip
    small = [torch.empty_like(t) for t in (given.offset, given.weight, given.bias, given.spatial)]
    small.append((torch.empty_like if sides else torch.zeros_like)(given.spectral))
    dense_image_totals_kernel[(channels, 3 + 2 * sides)](
        given.offset, given.weight, given.spatial, products, sums, dbands, *small, channels, parts,
        given.height, given.width, SIDES=sides, K=given.taps, N=n,
    )  # fmt: skip
    bins = dstatic.sum(dim=0)[..., : given.height * given.columns].transpose(1, 2)
    return dp, *small, bins.reshape(given.static.shape).contiguous()


def _matrices(given: Images) -> Matrices:
    channels, n, low = given.channels, _size(given), _low(given)
    convs = given.p.new_empty((4, channels, 1 + low, n, n), dtype=torch.bfloat16)
    constants = convs.new_empty((4, channels), dtype=torch.float32)
    bands = convs.new_empty((channels, n, n) if given.sides else 0, dtype=torch.float16)
    totals = constants.new_empty(channels if given.sides else 0)
    dense_image_matrices_kernel[(channels, 3 + 2 * given.sides)](
        given.offset, given.weight, given.bias, given.spatial, given.spectral, convs, constants, bands, totals,
        channels, given.height, given.width, LOW=low, K=given.taps, N=n,
    )  # fmt: skip
    static = constants.new_zeros((channels, 2, n))
    static[..., : given.height * given.columns] = given.static.flatten(1, 2).transpose(1, 2)
    return Matrices(convs, constants, bands, totals, static)


def _tables(given: Images) -> Tensor:
    """Return C and S (``dense/tiles.py``), (2, N, N) float16."""
    height, width, n, device = given.height, given.width, _size(given), given.p.device
    return kept(("dense-images", height, width), device, lambda: _waves(height, width, n, device))


def _waves(height: int, width: int, n: int, device: torch.device) -> Tensor:
    columns = width // 2 + 1
    pixel, k = torch.arange(height * width, device=device), torch.arange(height * columns, device=device)
    s, t, k1, k2 = pixel // width, pixel % width, k // columns, k % columns
    turns = (s[:, None] * k1 % height).double() / height + (t[:, None] * k2 % width).double() / width
    waves = torch.zeros(2, n, n, dtype=torch.float16, device=device)
    angle = 2 * math.pi * turns
    waves[:, : len(pixel), : len(k)] = torch.stack((angle.cos(), -angle.sin())).half()
    return waves


def _scale(given: Images) -> float:
    """Return the orthonormal transform's."""
    return 1 / math.sqrt(given.height * given.width)


def _low(given: Images) -> int:
    """Return 1 if bfloat16 does not hold the taps whole."""
    return int(any(t.dtype != torch.bfloat16 for t in (given.weight, given.spatial)))


def _size(given: Images) -> int:
    """Return N, the side of every matrix."""
    return max(LEAST, power_of_two(max(given.height * given.width, given.height * given.columns)))


def _settings(given: Images) -> dict[str, Any]:
    sizes = {"H": given.height, "W": given.width, "N": _size(given)}
    return {"LOW": _low(given), **sizes, "ROWS": ROWS, "num_warps": 4, "num_stages": 1}


def _steps(given: Images) -> tuple[int, int]:
    """Return how many tiles of samples a program goes through, and into how many parts they fall."""
    tiles = cdiv(given.batch, ROWS)
    steps = cdiv(tiles, min(tiles, cdiv(PROGRAMS, given.channels)))
    return steps, cdiv(tiles, steps)
