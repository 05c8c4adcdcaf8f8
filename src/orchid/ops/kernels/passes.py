"""The fused layer, forward and backward, in chunks of channels: rows in one kernel, in three passes or around FFTs.

What stands between the kernels, the static kernel's spectrum included, exists for one chunk at a time: the scratch is
small. All sums have a fixed order: the results are the same bits from run to run.
"""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from orchid.ops.kernels.around_fft import path as around_fft
from orchid.ops.kernels.dense import path as dense
from orchid.ops.kernels.four_step import path as four_step
from orchid.ops.kernels.long import path as long
from orchid.ops.kernels.operands import Operands, Static
from orchid.ops.kernels.static.spectra import StaticGradients, static_of, static_spectra
from orchid.ops.kernels.streams import launches as octet_passes
from orchid.ops.kernels.tables import Made, capturing
from orchid.ops.kernels.totals import LayerTotals

# Elements (channels x batch x n) of a chunk, by the scratch that a path needs for them, forward and backward: rows in
# one kernel need none forward.
FORWARD = {around_fft: 5 * 2**21, long: 2**27, dense: 2**62, four_step: 2**62}
BACKWARD = {around_fft: 5 * 2**21, long: 3 * 2**23, dense: 5 * 2**23, four_step: 5 * 2**23}
# The static kernel's spectrum is kept for the backward pass where it is smaller than this, in elements: half a GiB.
SMALL = 2**27
# The static kernel's spectrum, and numbers beside it.
Kept = tuple[Tensor, Tensor]
# Frozen ones by what they were made of: the path whose order they are in, its version, and they.
_FROZEN: WeakIdKeyDictionary = WeakIdKeyDictionary()
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def forward(given: Operands) -> tuple[Tensor, Tensor, Tensor]:
    """Return y (B, D, L), and what ``empty_kept`` has room for."""
    p, channels = given.p, given.channels
    y, path, keeper = by_channel(p, channels, given.length), path_of(given, p), _keeper(given)
    kept = _kept(given, keeper)
    statics = _statics(given, path, keeper, kept)
    if path is dense:
        dense.write(given, statics(0, channels), y)
        return y, *kept
    step = _step(given, FORWARD[path])
    signals = _scratch(given, step, 1 + given.sides) if path is around_fft else p.new_empty(0)
    for first, last in chunks(channels, step):
        static = statics(first, last)
        if path is around_fft:
            around_fft.write(given, first, last, static, signals, y)
        else:
            path.write(given, first, last, static, y)
    return y, *kept


def backward(given: Operands, dy: Tensor, kept: Kept) -> Gradients:
    """Return the gradients of p, u, offset, weight, bias, spatial, spectral, hidden, output and delta.

    Those of absent arguments are empty. ``kept`` is what ``forward`` returned beside y.
    """
    p, u, sides = given.p, given.u, given.sides
    dp = by_channel(p, 3 * given.channels, given.length)
    du = p.new_empty(0) if u is None else by_channel(u, given.channels, u.shape[2])
    path = path_of(given, p, dy)
    statics = _statics(given, path, _keeper(given), kept)
    step = _step(given, BACKWARD[path])
    static_grads, totals = StaticGradients(given.kernel, step), LayerTotals(given)
    signals = _scratch(given, step, 2 + sides) if path is around_fft else p.new_empty(0)
    for first, last in chunks(given.channels, step):
        static = statics(first, last)
        if path is around_fft:
            grads, rows, spectral = around_fft.gradients(given, first, last, static, signals, dy)
            sums = around_fft.streams_gradients(given, first, last, dy, grads, dp)
        else:
            grads, rows, spectral = path.gradients(given, first, last, static, dy)
            sums = octet_passes.streams_gradients(given, first, last, dy, grads, dp)
        u_sums = None if u is None else around_fft.context_gradients(given, first, last, grads, du)
        totals.add(first, last, sums, u_sums, spectral)
        static_grads.add(first, last, rows, spectral[..., -1].sum(dim=0) if given.mirrored else None)
        del grads, rows
    return dp, du, *totals.all(), *static_grads.total()


def path_of(given: Operands, p: Tensor, dy: Tensor | None = None) -> ModuleType:
    """Return the module that takes p, or p and dy backward, through its kernels."""
    paths = () if given.mirrored else (dense, four_step, long)
    return next((path for path in paths if path.serves(given, p, dy)), around_fft)


def empty_kept(given: Operands) -> Kept:
    """Return room for what is kept of the static kernel for the backward pass, and numbers beside it."""
    return _empty_kept(given, _keeper(given))


def _empty_kept(given: Operands, keeper: ModuleType | None) -> Kept:
    """Return that room: for the ``static_rows`` of the path that keeps them, or for T h0 of two channels a row.

    T h0 is (pairs, n, 2). There is none where it would be large.
    """
    channels, n, delta = given.channels, given.n, given.delta
    nothing = delta.new_empty(0, dtype=torch.float32)
    if given.static is not None or not small_static(channels, n):
        return nothing, torch.empty_like(nothing)
    if keeper is None:
        return nothing.new_empty(((channels + 1) // 2, n, 2)), nothing
    made: Kept = keeper.empty_static_rows(n, channels, delta)
    return made


def _keeper(given: Operands) -> ModuleType | None:
    """Return the path of the forward pass if it keeps h0_f in an order of its own.

    Others are not asked: what they serve depends on the batch, which may be a symbol.
    """
    paths = () if given.mirrored else (four_step, long)
    return next((path for path in paths if path.serves(given, given.p)), None)


def _kept(given: Operands, keeper: ModuleType | None) -> Kept:
    kept = _empty_kept(given, keeper)
    if not kept[0].numel():
        return kept
    if keeper is None:
        return static_spectra(given.kernel, 0, given.channels), kept[1]
    for first, last in chunks(given.channels, chunk_step(given.channels, given.n, BACKWARD[keeper])):
        keeper.write_static_rows(given.kernel, first, last, kept[0][first:last], kept[1][first:last])
    return kept


def _statics(
    given: Operands, path: ModuleType, keeper: ModuleType | None, kept: Kept
) -> Callable[[int, int], Any]:  # fmt: skip
    """Return a function of first and last: the static kernel of channels first ... last - 1 as a path takes it."""
    kernel, nothing = given.kernel, kept[1].new_empty(0, dtype=torch.float32)
    if given.static is not None and path in (four_step, long):
        kept = frozen_rows(kernel, path)
    elif given.static is not None or keeper is None or path is not keeper:
        spectra = kept[0] if keeper is None else nothing
        if path in (dense, around_fft):
            return lambda first, last: static_of(kernel, spectra, first, last)
        return lambda first, last: path.static_rows(kernel, static_of(kernel, spectra, first, last), first, last)
    if kept[0].numel():
        return lambda first, last: (kept[0][first:last], kept[1][first:last])

    def made(first: int, last: int) -> Kept:
        rows: Kept = path.empty_static_rows(given.n, last - first, nothing)
        path.write_static_rows(kernel, first, last, *rows)
        return rows

    return made


def frozen_rows(kernel: Static, path: ModuleType) -> Kept:
    """Return h0_f of a frozen kernel as a path takes it, put in its order at the first call."""
    static, channels = kernel.kept, kernel.delta.shape[0]
    assert static is not None
    found = _FROZEN.get(static)
    if found is not None and found[:2] == (path, static._version):
        rows: Kept = found[2].ready()
        return rows
    made: Kept = path.empty_static_rows(kernel.n, channels, static)
    for first, last in chunks(channels, chunk_step(channels, kernel.n, BACKWARD[path])):
        for whole, part in zip(made, path.static_rows(kernel, static, first, last), strict=True):
            whole[first:last] = part
    if not capturing(static.device):
        _FROZEN[static] = (path, static._version, Made(made, static.device))
    return made


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


def _scratch(given: Operands, step: int, rows: int) -> Tensor:
    """Return room for the complex rows of a chunk of channels, (pairs, B, rows, n, 2)."""
    return given.p.new_empty((step // 2, given.batch, rows, given.n, 2), dtype=torch.float32)


def small_static(channels: int, n: int) -> bool:
    """Return whether the static kernel's spectrum is kept for the backward pass."""
    return channels * n <= SMALL
