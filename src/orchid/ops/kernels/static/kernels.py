"""The static kernel, from its network's last hidden layer to rows, complex ones of two channels or real ones, and back.

h0[d, t] = scale exp(fall |tau(t)| / (span + slope d)) sum_w output[d, w] hidden[t, w]. The products run on tensor
cores: in three TF32 terms each ("tf32x3"), float32 but for the last bits, or, for bfloat16 streams, in one.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched


@triton.jit
def _decay(d, last, t, n, unit, span, slope, fall, scale):
    d = tl.minimum(d, last - 1)  # beyond the channels the span would pass through zero
    lag = tl.where(t < n - n // 2, t, tl.maximum(n - t, 0)).to(tl.float32) * unit
    return scale * tl.exp(lag * (fall / (span + slope * d.to(tl.float32))))


@triton.jit
def _rows(pointer, row, count, width, WIDTH: tl.constexpr):
    """Load rows of a (count, width) matrix in float32, zero outside."""
    w = tl.arange(0, WIDTH)[None, :]
    inside = (row < count)[:, None] & (w < width)
    return tl.load(pointer + row[:, None] * width + w, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def product(x, y, PRECISION: tl.constexpr):
    """Return x y. A tensor core cuts a float32 to TF32's 10 bits; to lose nothing to a bias it is rounded first."""
    if PRECISION == "tf32":
        x = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
        y = ((y.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.dot(x, y, input_precision=PRECISION)


@triton.jit
def _both(rows, pair, t, n, size, d, last, COMPLEX: tl.constexpr):
    """Load positions t (BLOCK,) of channels d and d + 1 (PAIRS,): of complex rows, or of two real ones each."""
    inside = (d < last)[:, None] & (t < n)[None, :]
    if COMPLEX:
        cell = 2 * (pair[:, None] * size + t[None, :])
        part = tl.arange(0, 2)[None, None, :]
        return tl.split(tl.load(rows + cell[:, :, None] + part, mask=inside[:, :, None], other=0.0))
    else:
        cell = 2 * pair[:, None] * n + t[None, :]
        beside = inside & (d + 1 < last)[:, None]
        return tl.load(rows + cell, mask=inside, other=0.0), tl.load(rows + n + cell, mask=beside, other=0.0)


@launched
@triton.jit(do_not_specialize=["first", "last"])
def static_kernel(
    hidden, output, out, first, last, n, size, width, unit, span, slope, fall, scale,
    COMPLEX: tl.constexpr, MIRRORED: tl.constexpr,
    PRECISION: tl.constexpr, WIDTH: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write h0 of channels first ... last - 1, (pairs, size) complex or (channels, n); hidden (n, W), output (D, W).

    MIRRORED rows are of 2 n, lags once more backwards.
    """
    t, pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * PAIRS + tl.arange(0, PAIRS)
    d = first + 2 * pair
    z = tl.trans(_rows(hidden, t, n, width, WIDTH))
    x = product(_rows(output, d, last, width, WIDTH), z, PRECISION)
    y = product(_rows(output, d + 1, last, width, WIDTH), z, PRECISION)
    x *= _decay(d[:, None], last, t[None, :], n, unit, span, slope, fall, scale)
    y *= _decay(d[:, None] + 1, last, t[None, :], n, unit, span, slope, fall, scale)
    inside = (d < last)[:, None] & (t < n)[None, :]  # a chunk's cells fit 32 bits
    if COMPLEX:
        cell = 2 * (pair[:, None] * size + t[None, :])
        tl.store(out + cell[:, :, None] + tl.arange(0, 2)[None, None, :], tl.join(x, y), mask=inside[:, :, None])
        if MIRRORED:
            cell = 2 * (pair[:, None] * size + size - 1 - t[None, :])
            tl.store(out + cell[:, :, None] + tl.arange(0, 2)[None, None, :], tl.join(x, y), mask=inside[:, :, None])
    else:
        cell = 2 * pair[:, None] * n + t[None, :]
        tl.store(out + cell, x, mask=inside)
        tl.store(out + n + cell, y, mask=inside & (d + 1 < last)[:, None])


@launched
@triton.jit(do_not_specialize=["first", "last", "steps"])
def static_grad_kernel(
    rows, hidden, output, dhidden, doutput, ddelta, first, last, n, size, width, unit, span, slope, fall, scale, steps,
    COMPLEX: tl.constexpr, TAP: tl.constexpr, FIRST: tl.constexpr,
    PRECISION: tl.constexpr, WIDTH: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add to a group's share of dhidden (groups, n, W), and write ddelta and a block's share of doutput (blocks, C, W).

    The FIRST chunk of channels adds to nothing. rows are the gradients of the kernels in time, of channels first ...
    last - 1: (pairs, size) complex or (channels, n). ddelta only where delta is a TAP, at lag 0.
    """
    block, group = tl.program_id(0), tl.program_id(1)
    dhidden += group.to(tl.int64) * n * width
    t, w = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, WIDTH)[None, :]
    z = _rows(hidden, t, n, width, WIDTH)
    own, inside = t[:, None] * width + w, (t < n)[:, None] & (w < width)
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    if not FIRST:
        total += tl.load(dhidden + own, mask=inside, other=0.0)
    for step in range(steps):
        pair = (group * steps + step) * PAIRS + tl.arange(0, PAIRS)
        d = first + 2 * pair
        x, y = _both(rows, pair, t, n, size, d, last, COMPLEX)
        if TAP:
            if block == 0:
                tl.store(ddelta + d, tl.sum(tl.where((t == 0)[None, :], x, 0.0), axis=1), mask=d < last)
                tl.store(ddelta + d + 1, tl.sum(tl.where((t == 0)[None, :], y, 0.0), axis=1), mask=d + 1 < last)
        x *= _decay(d[:, None], last, t[None, :], n, unit, span, slope, fall, scale)
        y *= _decay(d[:, None] + 1, last, t[None, :], n, unit, span, slope, fall, scale)
        total += product(tl.trans(x), _rows(output, d, last, width, WIDTH), PRECISION)
        total += product(tl.trans(y), _rows(output, d + 1, last, width, WIDTH), PRECISION)
        share = doutput + (block.to(tl.int64) * (last - first) + 2 * pair[:, None]) * width + w
        tl.store(share, product(x, z, PRECISION), mask=(d < last)[:, None] & (w < width))
        tl.store(share + width, product(y, z, PRECISION), mask=(d + 1 < last)[:, None] & (w < width))
    tl.store(dhidden + own, total, mask=inside)
