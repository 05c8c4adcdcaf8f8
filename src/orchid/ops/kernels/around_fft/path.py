"""A chunk of channels around the library's FFT, forward and backward: any length, any precision.

Forward:  signals -> FFT -> mix -> inverse FFT -> gate.
Backward: signals (with dc) -> FFT -> mix_grad -> inverse FFT -> streams_grad.
"""

import torch
from torch import Tensor

from orchid.ops.kernels.around_fft.products import PROGRAMS, warps_of, write_product_gradients, write_products
from orchid.ops.kernels.around_fft.time import gate_kernel, signals_kernel
from orchid.ops.kernels.around_fft.time_gradients import context_grad_kernel, streams_grad_kernel
from orchid.ops.kernels.launch import cdiv
from orchid.ops.kernels.operands import Operands, block_of
from orchid.ops.kernels.streams import launches as octet_passes
from orchid.ops.transforms import complex_dft, inverse_complex_dft

# Pairs of positions a program takes at a time, in the forward and in the backward pass.
TIME_BLOCK, TIME_GRAD_BLOCK = 256, 128


def write(given: Operands, first: int, last: int, static: Tensor, signals: Tensor, y: Tensor) -> None:
    """Write channels first ... last - 1 of y (B, D, L), with ``signals`` (pairs, B, 1 + sides, n, 2) as scratch."""
    p, n, batch, length = given.p, given.n, given.batch, given.length
    pairs, block = (last - first + 1) // 2, block_of(length, TIME_BLOCK)
    spectra = _spectra(given, first, pairs, signals, None)
    products = signals.view(-1, batch, n, 2)[:pairs]  # the signals have been read
    kept = given.static is not None
    write_products(
        spectra, static, given.delta, given.spectral, products, first, given.scale, kept=kept, mirrored=given.mirrored
    )
    del spectra
    c = inverse_complex_dft(products)
    if given.in_octets(p, y):
        octet_passes.write_gated(given, first, pairs, c, y)
        return
    gate_kernel[(pairs * batch, cdiv(length, 2 * block))](
        p, given.offset, given.weight, given.bias, c, given.address(given.pad), y,
        first, given.channels, batch, length, given.period, n, *p.stride(), *y.stride()[:2],
        **given.time(), HAS_PAD=given.pad is not None, PAIRED=given.in_pairs(p), BLOCK=block, num_warps=warps_of(block),
    )  # fmt: skip


def gradients(
    given: Operands, first: int, last: int, static: Tensor, signals: Tensor, dy: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a chunk of channels, from first to last - 1, gives to the gradients.

    Returns:
        (pairs, B, 2 + sides, n, 2): da, the gradients of the conditioning sequences, c, two channels a row;
        (pairs, n, 2): that of h0; (parts, channels, K): what programs give to that of the spectral taps, of mirrored
        rows also of the taps delta, (..., K + 1).
    """
    pairs, kept = (last - first + 1) // 2, given.static is not None
    spectra = _spectra(given, first, pairs, signals, dy)
    products = signals[:pairs]  # the signals have been read
    rows, dspectral = write_product_gradients(
        spectra, static, given.delta, given.spectral, products, first, given.scale, kept=kept, mirrored=given.mirrored
    )
    del spectra
    return inverse_complex_dft(products), rows, dspectral


def streams_gradients(given: Operands, first: int, last: int, dy: Tensor, grads: Tensor, dp: Tensor) -> Tensor:
    """Write a chunk's part of dp (B, 3 D, L) from what ``gradients`` returned.

    Returns what its programs have summed, (pairs, parts, 2, count).
    """
    p, sides = given.p, 0 if given.u is not None else given.sides
    sums = _Sums(given, last - first, given.length, 3 * (given.taps + 1) + 3 + sides * given.taps)
    streams_grad_kernel[(sums.pairs, sums.parts)](
        p, dy, given.offset, given.weight, given.bias, given.spatial, grads, given.address(given.pad), dp, sums.partial,
        first, given.channels, given.batch, given.length, given.period, given.n, sums.blocks,
        *p.stride(), *dy.stride(), *dp.stride()[:2],
        ROWS=2 + given.sides, SIDES=sides, **given.time(), HAS_PAD=given.pad is not None,
        PAIRED=given.in_pairs(p, dy), steps=sums.steps, BLOCK=sums.block, num_warps=max(1, sums.block // 32),
    )  # fmt: skip
    return sums.partial


def context_gradients(given: Operands, first: int, last: int, grads: Tensor, du: Tensor) -> Tensor:
    """Write a chunk's part of du (B, D, M), and return the sums, likewise."""
    u = given.source
    sums = _Sums(given, last - first, u.shape[2], given.sides * given.taps + 1)
    context_grad_kernel[(sums.pairs, sums.parts)](
        u, given.offset, given.bias, given.spatial, grads, given.address(given.u_pad), du, sums.partial,
        first, given.channels, given.batch, u.shape[2], given.period, given.n, sums.blocks,
        *u.stride(), *du.stride()[:2],
        ROWS=2 + given.sides, SIDES=given.sides, **given.time(), HAS_PAD=given.u_pad is not None,
        PAIRED=given.in_pairs(u), steps=sums.steps, BLOCK=sums.block, num_warps=max(1, sums.block // 32),
    )  # fmt: skip
    return sums.partial


class _Sums:
    """The sums of programs that go through the blocks of a chunk's positions: (pairs, parts, 2, count)."""

    def __init__(self, given: Operands, channels: int, length: int, count: int) -> None:
        self.pairs, self.block = (channels + 1) // 2, block_of(length, TIME_GRAD_BLOCK)
        self.blocks = cdiv(length, 2 * self.block)
        items = given.batch * self.blocks
        self.steps = max(1, min(64, (given.channels + 1) // 2 * items // PROGRAMS))
        self.parts = cdiv(items, self.steps)
        self.partial = given.p.new_empty((self.pairs, self.parts, 2, count), dtype=torch.float32)


def _spectra(given: Operands, first: int, pairs: int, signals: Tensor, dy: Tensor | None) -> Tensor:
    """Return the spectra (pairs, B, rows, n, 2) of a, of the conditioning sequences, and with dy of dc."""
    p, source, n = given.p, given.source, given.n
    if given.u is None and not given.mirrored and given.in_octets(p, p if dy is None else dy):
        octet_passes.write_signals(given, first, pairs, signals, dy)
        return complex_dft(signals[:pairs])
    grad, block = p if dy is None else dy, block_of(n, TIME_BLOCK)
    signals_kernel[(pairs * given.batch, cdiv(given.kernel.n, 2 * block))](
        p, source, grad, given.offset, given.weight, given.bias, given.spatial,
        given.address(given.pad), given.address(given.source_pad), signals,
        first, given.channels, given.batch, given.length, source.shape[2], given.period, n,
        *p.stride(), *source.stride(), *grad.stride(),
        SIDES=given.sides, GRAD=dy is not None, **given.time(),
        HAS_PAD=given.pad is not None, HAS_U_PAD=given.source_pad is not None,
        PAIRED=given.in_pairs(p, grad), U_PAIRED=given.in_pairs(source), MIRRORED=given.mirrored,
        BLOCK=block, num_warps=warps_of(block),
    )  # fmt: skip
    return complex_dft(signals[:pairs])
