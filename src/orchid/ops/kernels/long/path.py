"""Rows of 8,192 to 1,048,576, powers of two, in three passes over memory: which inputs are served, and the launches."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, shared_memory
from orchid.ops.kernels.long.backward import long_conditioning_grad_kernel, long_mix_grad_kernel
from orchid.ops.kernels.long.columns import (
    long_gate_kernel,
    long_rows_kernel,
    long_signals_kernel,
    long_times_kernel,
)
from orchid.ops.kernels.long.spectra import long_bins_kernel, long_mix_kernel, long_sizes_kernel, long_static_kernel
from orchid.ops.kernels.operands import Operands, Static
from orchid.ops.kernels.static.spectra import write_static
from orchid.ops.kernels.tables import fragments, kept, waves


class Shape(NamedTuple):
    """How a transform is split, n = R N1 N2; warps are as many as products have sixteens of rows.

    Attributes:
        r: R, the rows.
        n1: N1, of the transform along a row.
        n2: N2.
        tile: columns that a program takes at a time.
        shared: bytes of shared memory that a program may need, whatever the GPU's generation.
        programs: as many are wanted in a launch.
    """

    r: int
    n1: int
    n2: int
    tile: int = 64
    shared: int = 64 << 10
    programs: int = 4096

    @property
    def q(self) -> int:
        """Q, the length of a row."""
        return self.n1 * self.n2

    @property
    def across(self) -> int:
        """The warps that stand across a tile of transformed columns, where they do not stand along its rows."""
        return self.r // 32 if self.r // 2 < self.tile else 1

    @property
    def tiles(self) -> int:
        """The tiles of columns."""
        return self.q // self.tile

    def row(self, warps: int = 0, registers: int | None = None) -> dict[str, int]:
        """Return the constants of kernels in frequency."""
        given = {"R": self.r, "N1": self.n1, "N2": self.n2, "num_warps": warps or self.n1 // 16, "num_stages": 1}
        return given if registers is None or self.n1 < 64 else {**given, "maxnreg": registers}

    @property
    def columns(self) -> dict[str, int]:
        """The constants of kernels in time."""
        return {"R": self.r, "Q": self.q, "TILE": self.tile, "num_warps": self.r // 32, "num_stages": 1}


SHAPES = {
    2**13: Shape(32, 16, 16, programs=16384),
    2**14: Shape(32, 16, 32, programs=8192),
    2**15: Shape(32, 32, 32),
    2**16: Shape(32, 64, 32),
    2**17: Shape(64, 64, 32),
    2**18: Shape(128, 64, 32, 32),
    2**19: Shape(256, 64, 32, 32, 160 << 10),
    2**20: Shape(256, 128, 32, 32, 160 << 10),
}
# Places and rows of the static kernel's spectrum that a program puts in order.
PLACES = 4096
# Registers of kernels of four warps, and of the output gate's: a third more programs on a multiprocessor.
REGISTERS = 168


class _Tables(NamedTuple):
    """What the transforms of one length read.

    Attributes:
        matrices: of the columns' transform (2, R / 2, R) and of both stages along a row, float16.
        ahead: the columns' twiddle (Q / TILE, 2, R / 2, TILE), ``fragments``, float32.
        back: the same, (2, R / 2, Q).
        along: the twiddle between the stages, (2, N1, N2), ``fragments``.
        half: the columns' twiddle of row R / 2, (2, Q).
    """

    matrices: Tensor
    ahead: Tensor
    back: Tensor
    along: Tensor
    half: Tensor


def serves(given: Operands, p: Tensor, dy: Tensor | None = None) -> bool:
    """Return whether rows of p, and in the backward pass of dy, are served: see ``dense.serves``."""
    rows = (p,) if dy is None else (p, dy)
    return (
        given.n in SHAPES
        and SHAPES[given.n].shared <= shared_memory(p.device)
        and given.u is None
        and given.sides < 2
        and all(t.dtype == torch.bfloat16 for t in rows)
        and given.in_octets(*rows)
    )


def static_rows(kernel: Static, static: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return h0_f of channels first ... last - 1 as the kernels read it, (channels, R / 2 + 1, 2, Q) float16.

    ``static`` is h0_f of a frozen layer or T h0 of these channels (pairs, n, 2). Rows are over their largest number,
    which stands beside, (channels, R / 2 + 1).
    """
    shape, channels = SHAPES[kernel.n], last - first
    rows = static.new_empty((channels, shape.r // 2 + 1, 2, shape.q))
    places = max(16, PLACES // shape.r)
    long_static_kernel[channels, shape.q // places](
        static, kernel.delta, rows, first, KEPT=kernel.kept is not None, PLACES=places, **shape.row(4)
    )
    most = rows.abs().amax(dim=(2, 3)).clamp(min=torch.finfo(rows.dtype).tiny)
    return (rows / most[:, :, None, None]).half(), most


def empty_static_rows(n: int, channels: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return room for computed ``static_rows``."""
    shape = SHAPES[n]
    rows = like.new_empty((channels, shape.r // 2 + 1, 2, shape.q), dtype=torch.float16)
    return rows, like.new_empty(rows.shape[:2], dtype=torch.float32)


def write_static_rows(kernel: Static, first: int, last: int, rows: Tensor, row_scales: Tensor) -> None:
    """Compute h0_f of channels first ... last - 1 into ``static_rows``."""
    shape, channels = SHAPES[kernel.n], last - first
    tables = _tables(shape, rows.device)
    in_time = write_static(kernel, first, last, row_scales.new_empty((channels, kernel.n)))
    fields = rows.new_empty((channels, kernel.n))
    scales = row_scales.new_empty((channels, shape.tiles))
    long_rows_kernel[_grid(channels, steps := _steps(shape, channels, shape.tiles))](
        in_time, tables.matrices, tables.ahead, fields, scales, steps[0], **shape.columns
    )
    long_bins_kernel[_grid(channels, steps := _steps(shape, channels, shape.r // 2 + 1))](
        fields, scales, tables.matrices, tables.along, tables.half, kernel.delta, rows, row_scales, first, steps[0],
        TILE=shape.tile, **shape.row(),
    )  # fmt: skip


def write(given: Operands, first: int, last: int, static: tuple[Tensor, Tensor], y: Tensor) -> None:
    """Write channels first ... last - 1 of y (B, D, L); ``static`` are their ``static_rows``."""
    p, batch, channels, sides, shape = given.p, given.batch, last - first, given.sides, SHAPES[given.n]
    tables = _tables(shape, p.device)
    fields, scales = _signals(given, first, channels, None)
    slots = _sizes(given, fields, scales)
    row_scales = scales.new_empty((channels, batch, 1 + sides, shape.r // 2 + 1))
    long_mix_kernel[_grid(channels, steps := _steps(shape, channels, batch * (shape.r // 2 + 1)))](
        fields, scales, tables.matrices, tables.along, tables.half, *static, *slots, given.spectral, row_scales,
        first, batch, steps[0],
        FIELDS=1 + sides, SIDES=sides, K=given.taps, TILE=shape.tile, **shape.row(registers=REGISTERS),
    )  # fmt: skip
    long_gate_kernel[_grid(channels, steps := _steps(shape, channels, batch * shape.tiles))](
        p, given.offset, given.weight, given.bias, fields, row_scales, tables.matrices, tables.back,
        given.address(given.pad_words()), y,
        first, given.channels, batch, given.length, given.period, *p.stride()[:2], *y.stride()[:2], steps[0],
        FIELDS=1 + sides, **_time(given), **shape.columns, maxnreg=REGISTERS,
    )  # fmt: skip


def gradients(
    given: Operands, first: int, last: int, static: tuple[Tensor, Tensor], dy: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a chunk of channels, from first to last - 1, gives to the gradients: see ``dense.gradients``."""
    p, n, batch, channels, sides, shape = given.p, given.n, given.batch, last - first, given.sides, SHAPES[given.n]
    tables, count = _tables(shape, p.device), shape.r // 2 + 1
    fields, scales = _signals(given, first, channels, dy)
    slots = _sizes(given, fields, scales)
    dslots = (torch.empty_like(slots[0]), torch.empty_like(slots[1])) if sides else slots
    row_scales = scales.new_empty((channels, batch, 2 + sides, count))
    dstatic, dstatic_scales = fields.new_empty((channels, 1, 1, n)), scales.new_empty((channels, count))
    partial = scales.new_empty((channels, count, given.taps))
    long_mix_grad_kernel[_grid(channels, steps := _steps(shape, channels, count))](
        fields, scales, tables.matrices, tables.along, tables.half, *static, *slots, given.spectral, row_scales,
        *dslots, dstatic, dstatic_scales, partial,
        first, batch, steps[0], SIDES=sides, K=given.taps, TILE=shape.tile, **shape.row(),
    )  # fmt: skip
    if sides:
        long_conditioning_grad_kernel[_grid(channels, steps := _steps(shape, channels, batch * count))](
            fields, scales, tables.matrices, tables.along, tables.half, *dslots, given.spectral, row_scales,
            first, batch, given.scale, steps[0], K=given.taps, TILE=shape.tile, **shape.row(registers=REGISTERS),
        )  # fmt: skip
    grads = p.new_empty((channels, 2 + sides, batch, given.length))
    _write_times(shape, fields, row_scales, grads)
    in_time = scales.new_empty((channels, 1, 1, n))
    _write_times(shape, dstatic, dstatic_scales, in_time)
    return grads, in_time.view(channels, n), partial.transpose(0, 1)


def _signals(given: Operands, first: int, channels: int, dy: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the columns' transforms (channels, B, fields, n) of a, of the conditioning sequence and with dy of dc."""
    p, batch, shape, grad = given.p, given.batch, SHAPES[given.n], dy is not None
    tables, count = _tables(shape, p.device), 1 + given.sides + grad
    fields = p.new_empty((channels, batch, count, given.n), dtype=torch.float16)
    scales = p.new_empty((channels, batch, count, shape.tiles), dtype=torch.float32)
    dy = p if dy is None else dy
    long_signals_kernel[_grid(channels, steps := _steps(shape, channels, batch * shape.tiles))](
        p, dy, given.offset, given.weight, given.bias, given.spatial, tables.matrices, tables.ahead,
        given.address(given.pad_words()), fields, scales,
        first, given.channels, batch, given.length, given.period, *p.stride()[:2], *dy.stride()[:2], steps[0],
        SIDES=given.sides, GRAD=grad, **_time(given), **shape.columns,
    )  # fmt: skip
    return fields, scales


def _sizes(given: Operands, fields: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Return |G| in slots, and what they are to be multiplied by; nothing where the kernel is static."""
    if not given.sides:
        return fields, scales
    shape, (channels, batch, count) = SHAPES[given.n], fields.shape[:3]
    tables, rows = _tables(shape, fields.device), shape.r // 2 + 1
    slots = fields.new_empty((channels, batch, rows + 2 * (given.taps // 2), shape.q))
    slot_scales = scales.new_empty(slots.shape[:-1])
    long_sizes_kernel[_grid(channels, steps := _steps(shape, channels, batch * rows))](
        fields, scales, tables.matrices, tables.along, tables.half, slots, slot_scales, batch, given.scale, steps[0],
        FIELDS=count, K=given.taps, TILE=shape.tile, **shape.row(),
    )  # fmt: skip
    return slots, slot_scales


def _write_times(shape: Shape, fields: Tensor, scales: Tensor, out: Tensor) -> None:
    """Write fields (channels, B, fields, n), rows transformed back, in time: out (channels, fields, B, L)."""
    channels, batch, count = fields.shape[:3]
    tables = _tables(shape, fields.device)
    long_times_kernel[_grid(channels, steps := _steps(shape, channels, batch * count * shape.tiles))](
        fields, scales, tables.matrices, tables.back, out, batch, out.shape[3], steps[0],
        FIELDS=count, **shape.columns,
    )  # fmt: skip


def _tables(shape: Shape, device: torch.device) -> _Tables:
    return kept(("long", *shape[:4]), device, lambda: _make_tables(shape, device))


def _make_tables(shape: Shape, device: torch.device) -> _Tables:
    r, q, n = shape.r, shape.q, shape.r * shape.q
    columns = waves(r // 2, r, r, device)
    columns[1, 0] = 1 - 2 * (torch.arange(r, device=device) % 2)  # row R / 2, as row 0's imaginary part
    stages = [waves(size, size, size, device).flatten() for size in (shape.n1, shape.n2)]
    twiddle = waves(r // 2 + 1, q, n, device).float()
    back = twiddle[:, :-1].contiguous()
    return _Tables(
        torch.cat((columns.flatten(), *stages)).half(),
        fragments(back.unflatten(2, (shape.tiles, shape.tile)).permute(2, 0, 1, 3), shape.across),
        back,
        fragments(waves(shape.n1, shape.n2, q, device).float()),
        twiddle[:, -1].contiguous(),
    )


def _steps(shape: Shape, channels: int, items: int) -> tuple[int, int]:
    """Return how many of a channel's items a program goes through, and into how many parts they fall."""
    steps = cdiv(items, min(items, cdiv(shape.programs, channels)))
    return steps, cdiv(items, steps)


def _grid(channels: int, steps: tuple[int, int]) -> tuple[int, int]:
    return channels, steps[1]


def _time(given: Operands) -> dict[str, Any]:
    padded = given.pad is not None
    return {"FULL": given.length == given.n and not padded, "HAS_PAD": padded, **given.time()}
