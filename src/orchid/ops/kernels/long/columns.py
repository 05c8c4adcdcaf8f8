"""Long rows in time: the first and the last pass of ``long/transform.py``, with all that is done in time.

A program takes one channel and goes through tiles of columns, positions Q t1 + t2 for all t1 and TILE neighbouring t2,
of all samples.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.long.transform import columns_in_time, load_matrices, put_columns
from orchid.ops.kernels.streams.octets import in_eights
from orchid.ops.kernels.streams.parameters import channel_parameters
from orchid.ops.kernels.streams.tiles import fetch, load_tile, real_tokens, short_tile, signals_in_time, within


@triton.jit
def _positions(tile, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr):
    """Return t of a tile of columns, (R, TILE)."""
    return tl.arange(0, R)[:, None] * Q + tile * TILE + tl.arange(0, TILE)[None, :]


@triton.jit
def _lines(row, tile, length, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr):
    """Return where a tile of columns begins in each of its R rows, a line of the cache or half of one."""
    return row + tl.minimum(tl.arange(0, R) * Q + tile * TILE, length - 1)


@launched
@triton.jit(do_not_specialize=["first_d", "batch", "steps"])
def long_signals_kernel(
    p, dy, offset, weight, bias, spatial, tables, twiddles, pad, fields, scales,
    first_d, D, batch, length, period, p_batch, p_channel, dy_batch, dy_channel, steps,
    SIDES: tl.constexpr, GRAD: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the columns' transforms of a = s_1 * v, of the conditioning sequence and, GRAD, of s_2 * dy.

    fields (channels, B, 1 + SIDES + GRAD, R / 2, 2, Q), scales (..., Q / TILE).
    """
    TILES: tl.constexpr = Q // TILE
    FIELDS: tl.constexpr = 1 + SIDES + GRAD
    own = tl.program_id(0).to(tl.int64)
    d = first_d + own
    p_batch, p_channel, length = in_eights(p_batch), in_eights(p_channel), in_eights(length)
    dy_batch, dy_channel = in_eights(dy_batch), in_eights(dy_channel)
    v_own, s_own, t_own, g_own = channel_parameters(weight, bias, offset, spatial, d, D, SIDES, K)
    matrices = load_matrices(tables, R)
    first = tl.program_id(1) * steps
    last = tl.minimum(first + steps, batch * TILES) - 1
    for step in range(last + 1 - first):
        item = first + step
        b, tile = (item // TILES).to(tl.int64), item % TILES
        following = tl.minimum(item + 1, last)
        coming = p + (following // TILES).to(tl.int64) * p_batch
        fetch(_lines(coming + d * p_channel, following % TILES, length, R, Q, TILE))
        fetch(_lines(coming + (D + d) * p_channel, following % TILES, length, R, Q, TILE))
        t = _positions(tile, R, Q, TILE)
        here, pads, row = t >= 0, pad + b * length, p + b * p_batch
        inside = within(t, here, length, FULL)
        real = real_tokens(t, inside, pads, HAS_PAD)
        field, scale = fields + (own * batch + b) * (FIELDS * R * Q), scales + (own * batch + b) * (FIELDS * TILES)
        made = signals_in_time(
            row + d * p_channel, row + (D + d) * p_channel, v_own, s_own, g_own, t, here, real, length, pads, period,
            R, TILE // 8, SIDES, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        for i in tl.static_range(1 + SIDES):
            x = made[i] if FULL else tl.where(real, made[i], 0.0)
            put_columns(field + i * (R * Q), scale + i * TILES, x, matrices, twiddles, tile, R, Q, TILE)
        if GRAD:
            gate = short_tile(
                row + (2 * D + d) * p_channel, t_own, t, here, real, length, pads, period,
                R, TILE // 8, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
            )  # fmt: skip
            x = gate * load_tile(dy + b * dy_batch + d * dy_channel, t, 0.0, inside, real, FULL)
            if not FULL:
                x = tl.where(real, x, 0.0)
            put_columns(
                field + (1 + SIDES) * (R * Q), scale + (1 + SIDES) * TILES, x, matrices, twiddles, tile, R, Q, TILE
            )


@launched
@triton.jit(do_not_specialize=["steps"])
def long_rows_kernel(
    rows, tables, twiddles, fields, scales, steps, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Write the columns' transforms of rows (channels, n) as fields (channels, R / 2, 2, Q), scales (..., Q / TILE)."""
    TILES: tl.constexpr = Q // TILE
    own = tl.program_id(0).to(tl.int64)
    matrices = load_matrices(tables, R)
    first = tl.program_id(1) * steps
    for tile in range(first, tl.minimum(first + steps, TILES)):
        x = tl.load(rows + own * (R * Q) + _positions(tile, R, Q, TILE))
        put_columns(fields + own * (R * Q), scales + own * TILES, x, matrices, twiddles, tile, R, Q, TILE)


@launched
@triton.jit(do_not_specialize=["first_d", "batch", "steps"])
def long_gate_kernel(
    p, offset, weight, bias, fields, scales, tables, twiddles, pad, y,
    first_d, D, batch, length, period, p_batch, p_channel, y_batch, y_channel, steps,
    FIELDS: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * c, (B, D, L), c being the first of the fields (channels, B, FIELDS, R / 2, 2, Q)."""
    TILES: tl.constexpr = Q // TILE
    own = tl.program_id(0).to(tl.int64)
    d = first_d + own
    p_batch, p_channel, length = in_eights(p_batch), in_eights(p_channel), in_eights(length)
    y_batch, y_channel = in_eights(y_batch), in_eights(y_channel)
    _, _, t_own, _ = channel_parameters(weight, bias, offset, weight, d, D, 0, K)
    matrices = load_matrices(tables, R)
    first = tl.program_id(1) * steps
    for step in range(tl.minimum(steps, batch * TILES - first)):
        b, tile = ((first + step) // TILES).to(tl.int64), (first + step) % TILES
        t = _positions(tile, R, Q, TILE)
        here, pads, row = t >= 0, pad + b * length, p + b * p_batch + (2 * D + d) * p_channel
        fetch(_lines(row, tile, length, R, Q, TILE))  # loaded after the transform
        real = real_tokens(t, within(t, here, length, FULL), pads, HAS_PAD)
        place = (own * batch + b) * FIELDS
        c = columns_in_time(
            fields + place * (R * Q), scales + place * (R // 2 + 1), matrices, twiddles, tile, R, Q, TILE
        )
        gate = short_tile(
            row, t_own, t, here, real, length, pads, period,
            R, TILE // 8, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        out = gate * c
        if HAS_PAD:
            out = tl.where(real, out, 0.0)
        tl.store(y + b * y_batch + d * y_channel + t, out.to(y.dtype.element_ty), mask=t < length)


@launched
@triton.jit(do_not_specialize=["batch", "length", "steps"])
def long_times_kernel(
    fields, scales, tables, twiddles, out, batch, length, steps,
    FIELDS: tl.constexpr, R: tl.constexpr, Q: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write fields (channels, B, FIELDS, R / 2, 2, Q) in time, (channels, FIELDS, B, length)."""
    TILES: tl.constexpr = Q // TILE
    own, length = tl.program_id(0).to(tl.int64), in_eights(length)
    matrices = load_matrices(tables, R)
    first = tl.program_id(1) * steps
    for step in range(tl.minimum(steps, batch * FIELDS * TILES - first)):
        place, tile = (first + step) // TILES, (first + step) % TILES
        row = own * batch * FIELDS + place
        x = columns_in_time(fields + row * (R * Q), scales + row * (R // 2 + 1), matrices, twiddles, tile, R, Q, TILE)
        t = _positions(tile, R, Q, TILE)
        target = out + ((own * FIELDS + place % FIELDS) * batch + place // FIELDS) * length
        tl.store(target + t, x.to(out.dtype.element_ty), mask=t < length)
