"""The fused layer, forward and backward, in chunks of channels: rows in one kernel, in three passes or around FFTs.

What stands between the kernels, the static kernel's spectrum included, exists for one chunk at a time: the scratch is
small. All sums have a fixed order: the results are the same bits from run to run.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels import around_fft, dense, four_step, long, octet_passes
from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.static import StaticGradients, static_of, static_spectra

# Elements (channels x batch x n) of a chunk around FFTs, and how many times as many other paths take.
CHUNK = 5 * 2**21
SHARE = {around_fft: 1, long: 2, dense: 4, four_step: 4}
# The static kernel's spectrum is kept for the backward pass where it is smaller than this, in elements: half a GiB.
SMALL = 2**27
# The static kernel's spectrum, and numbers beside it.
Kept = tuple[Tensor, Tensor]
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def forward(given: Operands) -> tuple[Tensor, Tensor, Tensor]:
    """Return y (B, D, L), and what ``empty_kept`` has room for."""
    p, channels = given.p, given.channels
    y, path = by_channel(p, channels, given.length), path_of(given, p)
    kept = _kept(given)
    if path in (dense, four_step) and (kept[0].numel() or given.static is not None):
        path.write(given, _static(given, path, kept, 0, channels), y)
    elif path is long:
        for first, last in chunks(channels, _step(given, SHARE[long] * CHUNK)):
            long.write(given, first, last, _static(given, long, kept, first, last), y)
    else:
        signals = _scratch(given, 1 + given.sides)
        for first, last in chunks(channels, _step(given, CHUNK)):
            around_fft.write(given, first, last, _static(given, around_fft, kept, first, last), signals, y)
    return y, *kept


def backward(given: Operands, dy: Tensor, kept: Kept) -> Gradients:
    """Return the gradients of p, u, offset, weight, bias, spatial, spectral, hidden, output and delta.

    Those of absent arguments are empty. ``kept`` is what ``forward`` returned beside y.
    """
    p, u, sides = given.p, given.u, given.sides
    dp = by_channel(p, 3 * given.channels, given.length)
    du = p.new_empty(0) if u is None else by_channel(u, given.channels, u.shape[2])
    path = path_of(given, p, dy)
    step = _step(given, SHARE[path] * CHUNK)
    static_grads, spectral_sums, stream_sums, u_sums = StaticGradients(given.kernel, step), [], [], []
    signals = _scratch(given, 2 + sides) if path is around_fft else p.new_empty(0)
    for first, last in chunks(given.channels, step):
        static = _static(given, path, kept, first, last)
        if path is around_fft:
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


def path_of(given: Operands, p: Tensor, dy: Tensor | None = None) -> ModuleType:
    """Return the module that takes p, or p and dy backward, through its kernels."""
    return next((path for path in (dense, four_step, long) if path.serves(given, p, dy)), around_fft)


def empty_kept(given: Operands) -> Kept:
    """Return room for what is kept of the static kernel for the backward pass, and numbers beside it.

    T h0 of two channels a row, (pairs, n, 2), or for long rows ``long.static_rows``; nothing where it is large.
    """
    channels, n, delta = given.channels, given.n, given.delta
    nothing = delta.new_empty(0, dtype=torch.float32)
    if given.static is not None or not small_static(channels, n):
        return nothing, nothing.clone()
    if long.keeps(given):
        return long.empty_static_rows(n, channels, delta)
    return nothing.new_empty(((channels + 1) // 2, n, 2)), nothing


def _kept(given: Operands) -> Kept:
    kept = empty_kept(given)
    if kept[0].ndim == 3:
        return static_spectra(given.kernel, 0, given.channels), kept[1]
    if kept[0].ndim == 4:
        for first, last in chunks(given.channels, chunk_step(given.channels, given.n, SHARE[long] * CHUNK)):
            long.write_static_rows(given.kernel, first, last, kept[0][first:last], kept[1][first:last])
    return kept


def _static(given: Operands, path: ModuleType, kept: Kept, first: int, last: int) -> Any:
    """Return the static kernel of channels first ... last - 1 as a path takes it."""
    spectra, scales = kept
    in_rows = spectra.ndim == 4
    if path is long and in_rows:
        return spectra[first:last], scales[first:last]
    if path is long and not spectra.numel() and given.static is None:
        return long.static_rows(given.kernel, spectra, first, last)
    static = static_of(given.kernel, scales.new_empty(0) if in_rows else spectra, first, last)
    return long.static_rows(given.kernel, static, first, last) if path is long else static


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
