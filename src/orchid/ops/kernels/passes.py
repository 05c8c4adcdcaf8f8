"""The fused layer's passes, forward and backward, in chunks of channels: short rows in one kernel, others around FFTs.

What stands between the kernels, the static kernel's spectrum included, exists for one chunk at a time: the scratch is
small. All sums have a fixed order: the results are the same bits from run to run.
"""

from collections.abc import Iterator
from types import ModuleType

import torch
from torch import Tensor

from orchid.ops.kernels import around_fft, dense, four_step, long, octet_passes
from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.static import StaticGradients, static_of, static_spectra

# Elements (channels x batch x n) of a chunk around FFTs; three passes need half, one kernel a quarter of the scratch.
CHUNK = 5 * 2**21
# The static kernel's spectrum is kept for the backward pass where it is smaller than this, in elements: half a GiB.
SMALL = 2**27
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def forward(given: Operands) -> tuple[Tensor, Tensor]:
    """Return y (B, D, L), and T h0 (pairs, n, 2) where it is small enough to be kept, else nothing."""
    p = given.p
    y = by_channel(p, given.channels, given.length)
    small = given.static is None and small_static(given.channels, given.n)
    kept = static_spectra(given.kernel, 0, given.channels) if small else given.delta.new_empty(0, dtype=torch.float32)
    one_kernel = one_kernel_path(given, p)
    if one_kernel is not None and (small or given.static is not None):
        one_kernel.write(given, static_of(given.kernel, kept, 0, given.channels), y)
        return y, kept
    if long.serves(given, p):
        for first, last in chunks(given.channels, _step(given, 4 * CHUNK)):
            long.write(given, first, last, static_of(given.kernel, kept, first, last), y)
        return y, kept
    signals = _scratch(given, 1 + given.sides)
    for first, last in chunks(given.channels, _step(given, CHUNK)):
        around_fft.write(given, first, last, static_of(given.kernel, kept, first, last), signals, y)
    return y, kept


def backward(given: Operands, dy: Tensor, kept: Tensor) -> Gradients:
    """Return the gradients of p, u, offset, weight, bias, spatial, spectral, hidden, output and delta.

    Those of absent arguments are empty. ``kept`` is what ``forward`` returned beside y.
    """
    p, u, sides = given.p, given.u, given.sides
    dp = by_channel(p, 3 * given.channels, given.length)
    du = p.new_empty(0) if u is None else by_channel(u, given.channels, u.shape[2])
    path, shares = one_kernel_path(given, p, dy), 4
    if path is None and long.serves(given, p, dy):
        path, shares = long, 2
    step = _step(given, CHUNK if path is None else shares * CHUNK)
    static_grads, spectral_sums, stream_sums, u_sums = StaticGradients(given.kernel, step), [], [], []
    signals = _scratch(given, 2 + sides) if path is None else p.new_empty(0)
    for first, last in chunks(given.channels, step):
        static = static_of(given.kernel, kept, first, last)
        if path is None:
            grads, rows, spectral = around_fft.gradients(given, first, last, static, signals, dy)
            stream_sums.append(around_fft.streams_gradients(given, first, last, dy, grads, dp))
        else:
            grads, rows, spectral = path.gradients(given, first, last, static, dy)
            stream_sums.append(octet_passes.streams_gradients(given, first, last, dy, grads, dp))
        if u is not None:
            u_sums.append(around_fft.context_gradients(given, first, last, grads, du))
        spectral_sums.append(spectral)
        static_grads.add(first, last, rows)
        del grads, rows
    doffset, dweight, dbias, dspatial = _parameter_grads(
        given, torch.cat(stream_sums), None if u is None else torch.cat(u_sums)
    )
    dspectral = torch.cat(spectral_sums)[: given.channels] if sides else torch.zeros_like(given.spectral)
    dhidden, doutput, ddelta = static_grads.total()
    return dp, du, doffset, dweight, dbias, dspatial, dspectral.to(given.spectral.dtype), dhidden, doutput, ddelta


def one_kernel_path(given: Operands, p: Tensor, dy: Tensor | None = None) -> ModuleType | None:
    """Return the module that takes p, or p and dy backward, through one kernel, if any does."""
    return next((path for path in (dense, four_step) if path.serves(given, p, dy)), None)


def by_channel(like: Tensor, channels: int, length: int) -> Tensor:
    """Return an empty (B, channels, length) stored channel by channel: for the projections one matrix, not B."""
    return like.new_empty((channels, like.shape[0], length)).transpose(0, 1)


def chunk_step(channels: int, size: int, elements: int) -> int:
    """Return the channels of a chunk of so many elements, ``size`` a channel: an even number."""
    return max(2, min(channels + channels % 2, elements // size // 2 * 2))


def chunks(channels: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield first and last channels."""
    for first in range(0, channels, step):
        yield first, min(first + step, channels)


def _step(given: Operands, elements: int) -> int:
    return chunk_step(given.channels, given.batch * given.n, elements)


def _scratch(given: Operands, rows: int) -> Tensor:
    """Return room for the complex rows of a chunk, (pairs, B, rows, n, 2)."""
    return given.p.new_empty((_step(given, CHUNK) // 2, given.batch, rows, given.n, 2), dtype=torch.float32)


def small_static(channels: int, n: int) -> bool:
    """Return whether the static kernel's spectrum is kept for the backward pass."""
    return channels * n <= SMALL


def _parameter_grads(given: Operands, sums: Tensor, u_sums: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of offset, weight, bias and spatial from the sums of every channel."""
    channels, taps, sides = given.channels, given.taps, given.sides
    roles = sums[:, : 3 * (taps + 1)].unflatten(1, (3, taps + 1)).transpose(0, 1).reshape(3 * channels, taps + 1)
    doffset = sums[:, 3 * (taps + 1) : 3 * (taps + 1) + 3].T.reshape(-1)
    dspatial = sums[:, 3 * (taps + 1) + 3 :]
    if u_sums is not None:
        dspatial = u_sums[:, :-1]
        doffset[:channels] += u_sums[:, -1]
    dspatial = dspatial.reshape(channels, sides, taps).transpose(0, 1)
    return (
        doffset.to(given.offset.dtype),
        roles[:, :-1].to(given.weight.dtype, memory_format=torch.contiguous_format, copy=True),
        roles[:, -1].to(given.bias.dtype, copy=True),
        dspatial.to(given.spatial.dtype, memory_format=torch.contiguous_format, copy=True),
    )
