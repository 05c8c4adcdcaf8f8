"""The fused layer's passes, forward and backward: which kernel when, in chunks of channels.

Forward:  signals -> FFT -> mix -> inverse FFT -> gate.
Backward: signals (with dc) -> FFT -> mix_grad -> inverse FFT -> streams_grad.

What stands between the kernels, the static kernel's spectrum included, exists for one chunk at a time: the scratch is
small. All sums have a fixed order: the results are the same bits from run to run.
"""

from collections.abc import Iterator
from typing import Any

import torch
import triton
from torch import Tensor

from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.spectrum import mix_grad_kernel, mix_kernel
from orchid.ops.kernels.static_kernel import static_grad_kernel, static_kernel
from orchid.ops.kernels.time_domain import gate_kernel, signals_kernel
from orchid.ops.kernels.time_gradients import context_grad_kernel, streams_grad_kernel
from orchid.ops.transforms import complex_dft, inverse_complex_dft

# Elements (channels x batch x n) of a chunk.
CHUNK = 3 * 2**22
# Pairs of positions and bins a program takes at a time, in the forward and in the backward pass.
TIME_BLOCK, TIME_GRAD_BLOCK, BIN_BLOCK, BIN_GRAD_BLOCK = 256, 128, 256, 128
# Pairs of channels and lags of the static kernel a program takes at a time.
STATIC_PAIRS, LAG_BLOCK = 16, 64
# The static kernel's spectrum is kept for the backward pass where it is smaller than this, in elements.
SMALL = 2**23
# Programs wanted in a launch whose programs sum: enough to fill a large GPU.
PROGRAMS = 2048
# The last axis of a launch has no more programs than this.
MOST_GROUPS = 65535
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def forward(given: Operands) -> tuple[Tensor, Tensor]:
    """Return y (B, D, L), and T h0 (pairs, n, 2) where it is small enough to be kept, else nothing."""
    p, n, batch, length = given.p, given.n, given.batch, given.length
    y = by_channel(p, given.channels, length)
    small = given.static is None and small_static(p, n)
    kept = _static_spectra(given, 0, given.channels) if small else given.delta.new_empty(0, dtype=torch.float32)
    signals = _scratch(given, 1 + given.sides)
    time, paired, block = given.time(), given.in_pairs(p), _block(length, TIME_BLOCK)
    bins = _block(n + 2, BIN_BLOCK)
    blocks = triton.cdiv(n // 2 + 1, bins)
    for first, last in _chunks(given):
        pairs = (last - first + 1) // 2
        groups = _groups(batch, pairs * blocks)
        spectra = _spectra(given, first, pairs, signals, None)
        products = signals.view(-1, batch, n, 2)[:pairs]  # the signals have been read
        mix_kernel[(pairs, blocks, groups)](
            spectra, _static_of(given, kept, first, last), given.delta, given.spectral, products,
            first, given.channels, batch, n, given.scale / 2, 0.25 / n,
            KEPT=given.static is not None, GROUP=batch // groups, SIDES=given.sides, K=given.taps,
            BLOCK=bins, num_warps=_warps(bins),
        )  # fmt: skip
        del spectra
        c = inverse_complex_dft(products)
        gate_kernel[(pairs * batch, triton.cdiv(length, 2 * block))](
            p, given.offset, given.weight, given.bias, c, given.address(given.pad), y,
            first, given.channels, batch, length, given.period, n, *p.stride(), *y.stride()[:2],
            **time, HAS_PAD=given.pad is not None, PAIRED=paired, BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
    return y, kept


def backward(given: Operands, dy: Tensor, kept: Tensor) -> Gradients:
    """Return the gradients of p, u, offset, weight, bias, spatial, spectral, hidden, output and delta.

    Those of absent arguments are empty. ``kept`` is what ``forward`` returned beside y.
    """
    p, u, n, delta = given.p, given.u, given.n, given.delta
    hidden, output, spectral = given.hidden, given.output, given.spectral
    batch, channels, sides, taps = given.batch, given.channels, given.sides, given.taps
    dp = by_channel(p, 3 * channels, given.length)
    du = p.new_empty(0) if u is None else by_channel(u, channels, u.shape[2])
    own = sides if u is None else 0
    sums = _Sums(given, given.length, 3 * (taps + 1) + 3 + own * taps)
    u_sums = None if u is None else _Sums(given, u.shape[2], sides * taps + 1)
    lags = triton.cdiv(n, LAG_BLOCK)
    splits = max(1, min(_step(given) // (2 * STATIC_PAIRS), PROGRAMS // 8 // lags))
    dhidden = delta.new_empty(0) if hidden is None else hidden.new_zeros((splits, *hidden.shape))
    doutputs = []
    ddelta = torch.zeros_like(delta, dtype=torch.float32)
    signals = _scratch(given, 2 + sides)
    bins = _block(n + 2, BIN_GRAD_BLOCK)
    blocks = triton.cdiv(n // 2 + 1, bins)
    spectral_sums = []
    for first, last in _chunks(given):
        pairs = (last - first + 1) // 2
        groups = _groups(batch, pairs * blocks)
        spectra = _spectra(given, first, pairs, signals, dy)
        products = signals[:pairs]  # the signals have been read
        dstatic = spectra.new_empty((groups, pairs, n, 2))
        partial = spectra.new_empty((groups, blocks, pairs, 2, taps))
        mix_grad_kernel[(pairs, blocks, groups)](
            spectra, _static_of(given, kept, first, last), delta, spectral, products, dstatic, partial,
            first, channels, batch, n, given.scale / 2, 0.25 / n,
            KEPT=given.static is not None, GROUP=batch // groups, SIDES=sides, K=taps, BLOCK=bins,
            num_warps=max(1, bins // 32),
        )  # fmt: skip
        del spectra
        if sides:
            spectral_sums.append(partial.sum(dim=(0, 1)))
        if hidden is not None and output is not None:
            rows = inverse_complex_dft(dstatic.sum(dim=0) if groups > 1 else dstatic)
            shares = rows.new_empty((lags, last - first, hidden.shape[1]))
            static_grad_kernel[(lags, splits)](
                rows, hidden, output, dhidden, shares, ddelta, first, last, n, hidden.shape[1], *given.decay,
                STEPS=triton.cdiv(pairs, STATIC_PAIRS * splits), **_static_sizes(given, hidden),
            )  # fmt: skip
            doutputs.append(shares.sum(dim=0))
            del rows, shares
        grads = inverse_complex_dft(products)
        _streams_grad(given, first, pairs, dy, grads, dp, sums, own)
        if u_sums is not None:
            _context_grad(given, first, pairs, grads, du, u_sums)
        del grads
    doffset, dweight, dbias, dspatial = _parameter_grads(
        given, sums.total(), None if u_sums is None else u_sums.total()
    )
    dspectral = torch.cat(spectral_sums).flatten(0, 1)[:channels] if sides else torch.zeros_like(spectral)
    dhidden = dhidden if hidden is None else dhidden.sum(dim=0) if splits > 1 else dhidden.squeeze(0)
    doutput = delta.new_empty(0) if output is None else torch.cat(doutputs).to(output.dtype)
    return (
        dp, du, doffset, dweight, dbias, dspatial, dspectral.to(spectral.dtype),
        dhidden, doutput, ddelta.to(delta.dtype),
    )  # fmt: skip


class _Sums:
    """The sums of programs that go through the blocks of a channel's positions: (pairs, parts, 2, count)."""

    def __init__(self, given: Operands, length: int, count: int) -> None:
        pairs = (given.channels + 1) // 2
        self.channels, self.block = given.channels, _block(length, TIME_GRAD_BLOCK)
        self.blocks = triton.cdiv(length, 2 * self.block)
        items = given.batch * self.blocks
        self.steps = max(1, min(64, pairs * items // PROGRAMS))
        self.parts = triton.cdiv(items, self.steps)
        self.partial = given.p.new_empty((pairs, self.parts, 2, count), dtype=torch.float32)

    def total(self) -> Tensor:
        """Return the sums of every channel, (D, count)."""
        return self.partial.sum(dim=1).flatten(0, 1)[: self.channels]


def by_channel(like: Tensor, channels: int, length: int) -> Tensor:
    """Return an empty (B, channels, length) stored channel by channel: for the projections one matrix, not B."""
    return like.new_empty((channels, like.shape[0], length)).transpose(0, 1)


def _step(given: Operands) -> int:
    """Return the channels of a chunk, an even number."""
    return max(2, min(given.channels + given.channels % 2, CHUNK // (given.batch * given.n) // 2 * 2))


def _chunks(given: Operands) -> Iterator[tuple[int, int]]:
    """Yield first and last channels."""
    for first in range(0, given.channels, _step(given)):
        yield first, min(first + _step(given), given.channels)


def _scratch(given: Operands, rows: int) -> Tensor:
    """Return room for the complex rows of a chunk, (pairs, B, rows, n, 2)."""
    return given.p.new_empty((_step(given) // 2, given.batch, rows, given.n, 2), dtype=torch.float32)


def _groups(batch: int, programs: int) -> int:
    """Return how many groups the samples fall into, so that there are PROGRAMS or so: a divisor of the batch."""
    least = max(1, PROGRAMS // programs)
    divisors = [d for d in range(1, min(batch, MOST_GROUPS) + 1) if batch % d == 0]
    return next((d for d in divisors if d >= least), divisors[-1])


def _block(length: int, most: int) -> int:
    """Return a power of two of pairs of positions, not many more than the length has."""
    return min(most, triton.next_power_of_2(max(32, triton.cdiv(length, 2))))


def _warps(block: int) -> int:
    return max(1, min(4, block // 64))


def _static_sizes(given: Operands, hidden: Tensor) -> dict[str, Any]:
    precision = "tf32" if given.p.dtype == torch.bfloat16 else "tf32x3"
    width = triton.next_power_of_2(max(16, hidden.shape[1]))
    return {"PRECISION": precision, "WIDTH": width, "PAIRS": STATIC_PAIRS, "BLOCK": LAG_BLOCK}


def _spectra(given: Operands, first: int, pairs: int, signals: Tensor, dy: Tensor | None) -> Tensor:
    """Return the spectra (pairs, B, rows, n, 2) of a, of the conditioning sequences, and with dy of dc."""
    p, source, n = given.p, given.source, given.n
    grad, block = p if dy is None else dy, _block(n, TIME_BLOCK)
    signals_kernel[(pairs * given.batch, triton.cdiv(n, 2 * block))](
        p, source, grad, given.offset, given.weight, given.bias, given.spatial,
        given.address(given.pad), given.address(given.source_pad), signals,
        first, given.channels, given.batch, given.length, source.shape[2], given.period, n,
        *p.stride(), *source.stride(), *grad.stride(),
        SIDES=given.sides, GRAD=dy is not None, **given.time(),
        HAS_PAD=given.pad is not None, HAS_U_PAD=given.source_pad is not None,
        PAIRED=given.in_pairs(p, grad), U_PAIRED=given.in_pairs(source), BLOCK=block, num_warps=_warps(block),
    )  # fmt: skip
    return complex_dft(signals[:pairs])


def small_static(p: Tensor, n: int) -> bool:
    """Return whether the static kernel's spectrum is kept for the backward pass."""
    return p.shape[1] // 3 * n <= SMALL


def _static_of(given: Operands, kept: Tensor, first: int, last: int) -> Tensor:
    """Return h0_f of a frozen layer, or T h0 of a chunk's channels."""
    if given.static is not None:
        return given.static
    return kept[first // 2 : (last + 1) // 2] if kept.numel() else _static_spectra(given, first, last)


def _static_spectra(given: Operands, first: int, last: int) -> Tensor:
    """Return T h0 of some channels, (pairs, n, 2)."""
    hidden, output = given.hidden, given.output
    assert hidden is not None and output is not None
    pairs = (last - first + 1) // 2
    rows = hidden.new_empty((pairs, given.n, 2))
    static_kernel[(triton.cdiv(given.n, LAG_BLOCK), triton.cdiv(pairs, STATIC_PAIRS))](
        hidden, output, rows, first, last, given.n, hidden.shape[1], *given.decay,
        **_static_sizes(given, hidden),
    )  # fmt: skip
    return complex_dft(rows)


def _streams_grad(
    given: Operands, first: int, pairs: int, dy: Tensor, grads: Tensor, dp: Tensor, sums: _Sums, sides: int
) -> None:
    """Write a chunk's part of dp and of the sums."""
    p = given.p
    streams_grad_kernel[(pairs, sums.parts)](
        p, dy, given.offset, given.weight, given.bias, given.spatial, grads, given.address(given.pad), dp,
        sums.partial[first // 2 :],
        first, given.channels, given.batch, given.length, given.period, given.n, sums.blocks,
        *p.stride(), *dy.stride(), *dp.stride()[:2],
        ROWS=2 + given.sides, SIDES=sides, **given.time(), HAS_PAD=given.pad is not None,
        PAIRED=given.in_pairs(p, dy), STEPS=sums.steps, BLOCK=sums.block, num_warps=max(1, sums.block // 32),
    )  # fmt: skip


def _context_grad(given: Operands, first: int, pairs: int, grads: Tensor, du: Tensor, sums: _Sums) -> None:
    """Write a chunk's part of du and of the sums."""
    u = given.source
    context_grad_kernel[(pairs, sums.parts)](
        u, given.offset, given.bias, given.spatial, grads, given.address(given.u_pad), du, sums.partial[first // 2 :],
        first, given.channels, given.batch, u.shape[2], given.period, given.n, sums.blocks,
        *u.stride(), *du.stride()[:2],
        ROWS=2 + given.sides, SIDES=given.sides, **given.time(), HAS_PAD=given.u_pad is not None,
        PAIRED=given.in_pairs(u), STEPS=sums.steps, BLOCK=sums.block, num_warps=max(1, sums.block // 32),
    )  # fmt: skip


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
