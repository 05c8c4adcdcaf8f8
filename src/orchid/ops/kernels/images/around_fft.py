"""Images around the library's two-dimensional FFT: launches, in chunks of channels.

Forward:  signals -> FFT -> mix -> inverse FFT -> gate.
Backward: signals (with dc) -> FFT -> mix_grad -> inverse FFT -> products -> streams_grad.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from orchid.ops.kernels.around_fft.products import wanted_groups
from orchid.ops.kernels.images.operands import Images
from orchid.ops.kernels.images.spectra import image_mix_grad_kernel, image_mix_kernel
from orchid.ops.kernels.images.time import (
    image_gate_kernel,
    image_products_kernel,
    image_signals_kernel,
    image_streams_grad_kernel,
)
from orchid.ops.kernels.launch import cdiv
from orchid.ops.kernels.passes import by_channel, chunk_step, chunks
from orchid.ops.transforms import dft2, inverse_dft2

# Elements (channels x batch x H W) of a chunk.
ELEMENTS = 3 * 2**23
# Pixels and bins a program takes at a time, in the forward and in the backward pass.
BLOCK, GRAD_BLOCK = 256, 128
# Bins a warp takes at a time in the backward pass, of images that have too many for samples to share a program.
WARP_BLOCK = 32
# Programs wanted in a launch that sums over pixels.
PROGRAMS = 4096


def write(given: Images, y: Tensor) -> None:
    """Write y (B, D, H W)."""
    p, height, width = given.p, given.height, given.width
    for first, last in _chunks(given):
        spectra = _spectra(given, first, last, None)
        items = given.batch * height * given.columns
        image_mix_kernel[(cdiv(items, BLOCK), last - first)](
            spectra, given.static, given.spectral, first, given.batch, height, given.columns, width,
            SIDES=given.sides, K=given.taps, BLOCK=BLOCK,
        )  # fmt: skip
        c = inverse_dft2(torch.view_as_complex(spectra[0]), (height, width))
        image_gate_kernel[_grid(given, first, last, BLOCK)](
            p, given.offset, given.weight, given.bias, c, y, first, *given.sizes, *p.stride()[:2], *y.stride()[:2],
            K=given.taps, BLOCK=BLOCK,
        )  # fmt: skip


def gradients(given: Images, dy: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of p, offset, weight, bias, spatial, spectral and static."""
    p = given.p
    dp, dstatic = by_channel(p, p.shape[1], p.shape[2]), torch.empty_like(given.static)
    stream_sums, spectral_sums = [], []
    for first, last in _chunks(given):
        spectra, static_shares, taps = _spectral_gradients(given, first, last, dy)
        torch.sum(static_shares, dim=0, out=dstatic[first:last])
        grads = inverse_dft2(torch.view_as_complex(spectra), (given.height, given.width))
        stream_sums.append(_streams_gradients(given, first, last, dy, grads, dp))
        spectral_sums.append(taps)
    return dp, *_parameter_grads(given, torch.cat(stream_sums), torch.cat(spectral_sums)), dstatic


def _chunks(given: Images) -> Iterator[tuple[int, int]]:
    return chunks(given.channels, chunk_step(given.channels, given.batch * given.height * given.width, ELEMENTS))


def _spectra(given: Images, first: int, last: int, dy: Tensor | None) -> Tensor:
    """Return the half spectra (fields, channels, B, H, F, 2) of a, of the conditioning images, and with dy of dc."""
    p, grad, count = given.p, given.p if dy is None else dy, 1 + given.sides + (dy is not None)
    fields = p.new_empty((count, last - first, given.batch, given.height, given.width), dtype=torch.float32)
    image_signals_kernel[_grid(given, first, last, BLOCK)](
        p, grad, given.offset, given.weight, given.bias, given.spatial, fields, first, *given.sizes,
        *p.stride()[:2], *grad.stride()[:2], SIDES=given.sides, GRAD=dy is not None, K=given.taps, BLOCK=BLOCK,
    )  # fmt: skip
    return torch.view_as_real(dft2(fields))


def _spectral_gradients(given: Images, first: int, last: int, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the half spectra of da, of the conditioning images' gradients and of c; what groups of samples give to
    that of h0_f, (groups, channels, H, F, 2); that of the spectral taps, (channels, K²).
    """
    spectra, channels, taps = _spectra(given, first, last, dy), last - first, given.taps
    bins = given.height * given.columns
    samples = max(1, GRAD_BLOCK // bins)  # whole samples, or a few bins of one: as few idle lanes as there can be
    size = GRAD_BLOCK if samples > 1 else WARP_BLOCK
    blocks = cdiv(samples * bins, size)
    # whole turns of a program, so that no lanes idle but in the last one
    group = cdiv(cdiv(given.batch, wanted_groups(given.batch, channels * blocks)), samples) * samples
    groups = cdiv(given.batch, group)
    out, shape = torch.empty_like(spectra), (groups * samples, *spectra.shape[1:2], *spectra.shape[3:])
    dstatic = spectra.new_empty(shape)
    partial = spectra.new_empty((groups * blocks, channels, taps * taps))
    image_mix_grad_kernel[(blocks, channels, groups)](
        spectra, given.static, given.spectral, out, dstatic, partial,
        first, given.batch, given.height, given.columns, given.width, group,
        SIDES=given.sides, K=taps, SAMPLES=samples, BLOCK=size, num_warps=cdiv(size, 32),
    )  # fmt: skip
    return out, dstatic, partial.sum(dim=0) if given.sides else partial[0]


def _streams_gradients(given: Images, first: int, last: int, dy: Tensor, grads: Tensor, dp: Tensor) -> Tensor:
    """Write a chunk's part of dp and return the sums of its channels, (channels, 3, (1 + sides) K² + 2)."""
    p, channels, settings = given.p, last - first, {"SIDES": given.sides, "K": given.taps}
    products = p.new_empty((3, *grads.shape[1:]))
    image_products_kernel[_grid(given, first, last, BLOCK)](
        p, dy, given.offset, given.weight, given.bias, grads, products, first, *given.sizes,
        *p.stride()[:2], *dy.stride()[:2], **settings, BLOCK=BLOCK,
    )  # fmt: skip
    blocks = cdiv(given.batch * p.shape[2], GRAD_BLOCK)
    steps = max(1, min(64, 3 * channels * blocks // PROGRAMS))
    parts = cdiv(blocks, steps)
    partial = grads.new_empty((channels, parts, 3, (1 + given.sides) * given.taps**2 + 2))
    image_streams_grad_kernel[(parts, channels, 3)](
        p, given.offset, given.weight, given.spatial, products, grads, dp, partial, first, *given.sizes,
        *p.stride()[:2], *dp.stride()[:2], steps, **settings, BLOCK=GRAD_BLOCK,
    )  # fmt: skip
    return partial.sum(dim=1)


def _parameter_grads(given: Images, sums: Tensor, spectral: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of offset, weight, bias, spatial and spectral from the sums of every channel."""
    square, sides = given.taps**2, given.sides
    roles = sums.transpose(0, 1)  # (3, D, ...)
    side_sums = roles[0, :, square : square * (1 + sides)].unflatten(1, (sides, square)).transpose(0, 1)

    def like(x: Tensor, parameter: Tensor) -> Tensor:
        return x.reshape(parameter.shape).to(parameter.dtype, memory_format=torch.contiguous_format, copy=True)

    return (
        like(roles[..., -1], given.offset),
        like(roles[..., :square], given.weight),
        like(roles[..., -2], given.bias),
        like(side_sums, given.spatial),
        like(spectral, given.spectral) if sides else torch.zeros_like(given.spectral),
    )


def _grid(given: Images, first: int, last: int, block: int) -> tuple[int, int]:
    return cdiv(given.batch * given.height * given.width, block), last - first
