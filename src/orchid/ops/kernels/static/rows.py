"""Rows of two channels: from tokens (B, L, D) or channels (B, D, L) to complex rows (pairs, B, n), and back.

Channels d and d + 1 of a sample are the real and the imaginary part of one row (``around_fft/spectra.py`` says why),
zero padded to n.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched


@triton.jit
def _tile(batch, PAIRS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the pairs, the sample and the positions of a program."""
    pair = tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
    block, b = tl.program_id(0) // batch, tl.program_id(0) % batch
    return pair.to(tl.int64), b.to(tl.int64), block * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _cells(rows, pair, b, t, batch, step):
    """Return addresses (PAIRS, BLOCK, 2) of complex cells; ``step`` floats from one sample's row to the next's."""
    row = rows + (pair * batch + b) * step
    return row[:, None, None] + (2 * t[None, :, None] + tl.arange(0, 2)[None, None, :])


@triton.jit
def _tokens(x, b, t, first, x_batch, x_time, PAIRS: tl.constexpr):
    """Return addresses (BLOCK, 2 PAIRS) of tokens' channels, and the channels."""
    d = first + tl.program_id(1) * (2 * PAIRS) + tl.arange(0, 2 * PAIRS)
    return x + b * x_batch + t.to(tl.int64)[:, None] * x_time + d[None, :], d


@launched
@triton.jit(do_not_specialize=["first"])
def tokens_to_rows_kernel(
    x, rows, first, D, batch, length, n, step, x_batch, x_time, PAIRS: tl.constexpr, BLOCK: tl.constexpr
):
    """Write tokens x (B, L, D), contiguous along D, as rows, for the channels from ``first`` on."""
    pair, b, t = _tile(batch, PAIRS, BLOCK)
    at, d = _tokens(x, b, t, first, x_batch, x_time, PAIRS)
    values = tl.load(at, mask=(t < length)[:, None] & (d < D)[None, :], other=0.0).to(tl.float32)
    cells = tl.permute(tl.reshape(tl.trans(values), (PAIRS, 2, BLOCK)), (0, 2, 1))
    inside = (first + 2 * pair < D)[:, None, None] & (t < n)[None, :, None]
    tl.store(_cells(rows, pair, b, t, batch, step), cells, mask=inside)


@launched
@triton.jit(do_not_specialize=["first"])
def rows_to_tokens_kernel(
    rows, x, first, D, batch, length, step, x_batch, x_time, PAIRS: tl.constexpr, BLOCK: tl.constexpr
):
    """Write rows as tokens x (B, L, D): the reverse."""
    pair, b, t = _tile(batch, PAIRS, BLOCK)
    inside = (first + 2 * pair < D)[:, None, None] & (t < length)[None, :, None]
    cells = tl.load(_cells(rows, pair, b, t, batch, step), mask=inside, other=0.0)
    values = tl.trans(tl.reshape(tl.permute(cells, (0, 2, 1)), (2 * PAIRS, BLOCK)))
    at, d = _tokens(x, b, t, first, x_batch, x_time, PAIRS)
    tl.store(at, values.to(x.dtype.element_ty), mask=(t < length)[:, None] & (d < D)[None, :])


@triton.jit
def _both(x, b, t, first, pair, x_batch, x_channel):
    """Return addresses (PAIRS, BLOCK) of channels d and d + 1."""
    even = x + b * x_batch + (first + 2 * pair)[:, None] * x_channel + t[None, :]
    return even, even + x_channel


@launched
@triton.jit(do_not_specialize=["first"])
def channels_to_rows_kernel(
    x, rows, first, D, batch, length, n, step, x_batch, x_channel, PAIRS: tl.constexpr, BLOCK: tl.constexpr
):
    """Write channels x (B, D, L), contiguous along L, as rows."""
    pair, b, t = _tile(batch, PAIRS, BLOCK)
    even, odd = _both(x, b, t, first, pair, x_batch, x_channel)
    d, within = first + 2 * pair, (t < length)[None, :]
    real = tl.load(even, mask=(d < D)[:, None] & within, other=0.0).to(tl.float32)
    imaginary = tl.load(odd, mask=(d + 1 < D)[:, None] & within, other=0.0).to(tl.float32)
    inside = (d < D)[:, None, None] & (t < n)[None, :, None]
    tl.store(_cells(rows, pair, b, t, batch, step), tl.join(real, imaginary), mask=inside)


@launched
@triton.jit(do_not_specialize=["first"])
def add_rows_kernel(
    rows, x, y, first, D, batch, length, step, x_batch, x_channel, y_batch, y_channel,
    PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write y = x + rows, both (B, D, L), contiguous along L."""
    pair, b, t = _tile(batch, PAIRS, BLOCK)
    d, within = first + 2 * pair, (t < length)[None, :]
    inside = (d < D)[:, None] & within
    real, imaginary = tl.split(tl.load(_cells(rows, pair, b, t, batch, step), mask=inside[:, :, None], other=0.0))
    even, odd = _both(x, b, t, first, pair, x_batch, x_channel)
    real += tl.load(even, mask=inside, other=0.0).to(tl.float32)
    imaginary += tl.load(odd, mask=(d + 1 < D)[:, None] & within, other=0.0).to(tl.float32)
    even, odd = _both(y, b, t, first, pair, y_batch, y_channel)
    tl.store(even, real.to(y.dtype.element_ty), mask=inside)
    tl.store(odd, imaginary.to(y.dtype.element_ty), mask=(d + 1 < D)[:, None] & within)
