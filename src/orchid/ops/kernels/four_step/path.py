"""Rows of 256 to 4,096, powers of two, in one kernel: which inputs it serves, and its launches."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from orchid.ops.kernels.four_step.backward import four_step_grad_kernel
from orchid.ops.kernels.four_step.conv import four_step_conv_grad_kernel, four_step_conv_kernel
from orchid.ops.kernels.four_step.forward import four_step_kernel
from orchid.ops.kernels.four_step.static import four_step_static_grad_kernel, four_step_static_kernel
from orchid.ops.kernels.four_step.transform import WIDE
from orchid.ops.kernels.launch import cdiv, shared_memory
from orchid.ops.kernels.operands import Operands, Static, in_octets
from orchid.ops.kernels.static.spectra import static_spectra
from orchid.ops.kernels.tables import fragments, kept, waves
from orchid.ops.transforms import inverse_complex_dft


class Shape(NamedTuple):
    """How a transform is split: N1 N2, and rows side by side; what a program has.

    Attributes:
        n1: N1.
        n2: N2.
        rows: S.
        warps: as many as N1 has sixteens, so that what a warp has made is what it needs next.
        registers: the most a thread may have in the forward pass; fewer than the compiler likes are more warps at once.
        shared: bytes of shared memory, at most, whatever the GPU's generation.
        programs: as many are wanted in a launch of the forward pass: many end together, few load tables seldom.
    """

    n1: int
    n2: int
    rows: int
    warps: int
    registers: int | None
    shared: int
    programs: int = 4096


# By transform length, measured on an H200.
SHAPES = {
    256: Shape(16, 16, 2, 1, 128, 16 << 10, 8192),
    512: Shape(16, 32, 1, 1, 168, 16 << 10, 8192),
    1024: Shape(32, 32, 1, 2, 128, 32 << 10, 8192),
    2048: Shape(64, 32, 1, 4, 168, 48 << 10),
    4096: Shape(64, 64, 1, 4, None, 96 << 10),
    8192: Shape(128, 64, 1, 8, None, 192 << 10),
}
# Beyond it three passes over memory are faster (``long/path.py``), but for static convolutions alone.
LONGEST = 4096
# Programs wanted in a launch of the backward pass, each with sums of its own.
PROGRAMS = 4096


def serves(given: Operands, p: Tensor, dy: Tensor | None = None) -> bool:
    """Return whether rows of p, and in the backward pass of dy, are served: see ``dense.serves``."""
    rows = (p,) if dy is None else (p, dy)
    return (
        given.n in SHAPES
        and given.n <= LONGEST
        and SHAPES[given.n].shared <= shared_memory(p.device)
        and given.u is None
        and all(t.dtype == torch.bfloat16 for t in rows)
        and given.in_octets(*rows)
    )


def empty_static_rows(n: int, channels: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return room for ``static_rows``."""
    rows = like.new_empty((channels, 2, SHAPES[n].rows * n // 2), dtype=torch.float32)
    return rows, rows.new_empty((channels, 2))


def write_static_rows(kernel: Static, first: int, last: int, rows: Tensor, most: Tensor) -> None:
    """Compute h0_f of channels first ... last - 1 into ``static_rows``."""
    _put_in_order(kernel, static_spectra(kernel, first, last), first, last, rows, most)


def static_rows(kernel: Static, static: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Return h0_f of channels first ... last - 1 as the kernels read it, (channels, 2, S n / 2).

    ``static`` is h0_f of a frozen layer or T h0 of these channels (pairs, n, 2). Beside, (channels, 2): a bound on the
    size of a channel's bins, and its Nyquist bin.
    """
    made = empty_static_rows(kernel.n, last - first, static)
    _put_in_order(kernel, static, first, last, *made)
    return made


def _put_in_order(kernel: Static, static: Tensor, first: int, last: int, rows: Tensor, most: Tensor) -> None:
    shape = SHAPES[kernel.n]
    four_step_static_kernel[(last - first,)](
        static, kernel.delta, rows, most, first, KEPT=kernel.kept is not None, **_sizes(shape), num_warps=shape.warps
    )


def write(given: Operands, first: int, last: int, static: tuple[Tensor, Tensor], y: Tensor) -> None:
    """Write channels first ... last - 1 of y (B, D, L); ``static`` are their ``static_rows``."""
    p, channels, shape = given.p, last - first, SHAPES[given.n]
    steps, parts = _steps(given.batch, channels, shape, shape.programs)
    four_step_kernel[(channels, parts)](
        p, given.offset, given.weight, given.bias, given.spatial, given.spectral, *static,
        *tables(shape, p.device), given.address(given.pad_words()), y,
        first, given.channels, given.batch, given.length, given.period, given.scale, *p.stride()[:2], *y.stride()[:2],
        SIDES=given.sides, steps=steps, **_settings(given, shape),
        **({} if shape.registers is None else {"maxnreg": shape.registers}),
    )  # fmt: skip


def gradients(
    given: Operands, first: int, last: int, static: tuple[Tensor, Tensor], dy: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a chunk of channels, from first to last - 1, gives to the gradients: see ``dense.gradients``.

    The gradient of h0 is that of two channels a row, (pairs, n, 2).
    """
    p, n, batch, channels, shape = given.p, given.n, given.batch, last - first, SHAPES[given.n]
    steps, parts = _steps(batch, channels, shape, PROGRAMS)
    rows, most = static
    grads = p.new_empty((channels, 2 + given.sides, batch, given.length))
    dstatic = rows.new_empty((parts, *rows.shape))
    edges, partial = rows.new_empty((parts, channels)), rows.new_empty((parts, channels, given.taps))
    four_step_grad_kernel[(channels, parts)](
        p, dy, given.offset, given.weight, given.bias, given.spatial, given.spectral, rows, most,
        *tables(shape, p.device), given.address(given.pad_words()), grads, dstatic, edges, partial,
        first, given.channels, batch, given.length, given.period, given.scale, *p.stride()[:2], *dy.stride()[:2],
        SIDES=given.sides, steps=steps, **_settings(given, shape),
    )  # fmt: skip
    return grads, _static_gradients(n, dstatic, edges), partial


def serves_rows(n: int, rows: Tensor) -> bool:
    """Return whether a static convolution added to rows (B, D, L) is served."""
    fits = n in SHAPES and SHAPES[n].shared <= shared_memory(rows.device)
    return fits and rows.dtype == torch.bfloat16 and in_octets(rows)


def write_plus_conv(n: int, static: tuple[Tensor, Tensor], u: Tensor, x: Tensor, y: Tensor) -> None:
    """Write y = x + h0 conv u; x and y are (B, D, L), u is (D, B, L), ``static`` the kernel's ``static_rows``."""
    batch, channels, length = x.shape
    shape = SHAPES[n]
    steps, parts = _steps(batch, channels, shape, PROGRAMS)
    four_step_conv_kernel[(channels, parts)](
        u, x, *static, *tables(shape, u.device), y,
        batch, length, *x.stride()[:2], *y.stride()[:2], steps,
        FULL=length == n, **_sizes(shape), num_warps=shape.warps, num_stages=1,
    )  # fmt: skip


def conv_gradients(n: int, static: tuple[Tensor, Tensor], u: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of u, (D, B, L), and of h0, (pairs, n, 2), from dy (B, D, L)."""
    batch, channels, length = dy.shape
    shape = SHAPES[n]
    steps, parts = _steps(batch, channels, shape, PROGRAMS)
    rows, most = static
    du, dstatic, edges = torch.empty_like(u), rows.new_empty((parts, *rows.shape)), rows.new_empty((parts, channels))
    four_step_conv_grad_kernel[(channels, parts)](
        u, dy, rows, most, *tables(shape, u.device), du, dstatic, edges, batch, length, *dy.stride()[:2], steps,
        FULL=length == n, **_sizes(shape), num_warps=shape.warps, num_stages=1,
    )  # fmt: skip
    return du, _static_gradients(n, dstatic, edges)


def tables(shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the matrices of both stages, float16, and the twiddle, float32, in the order of ``fragments``."""
    return kept(("four-step", *shape[:3]), device, lambda: _tables(shape, device))


def _tables(shape: Shape, device: torch.device) -> tuple[Tensor, Tensor]:
    n1, n2, rows = shape[:3]
    first, second = waves(n1, n1, n1, device), waves(n2, n2 // 2, n2, device)
    second = torch.stack([torch.block_diag(*[wave] * rows) for wave in second])
    if n1 >= WIDE.value:
        second = torch.cat((torch.cat((second[0], second[1]), dim=1), torch.cat((-second[1], second[0]), dim=1)))
    twiddle = waves(n1, n2, n1 * n2, device).repeat(1, 1, rows)
    return torch.cat((first.flatten(), second.flatten())).half(), fragments(twiddle.float())


def _static_gradients(n: int, dstatic: Tensor, edges: Tensor) -> Tensor:
    """Return the gradient of h0, (pairs, n, 2), from what programs have summed."""
    parts, channels = edges.shape
    shape, pairs = SHAPES[n], dstatic.new_empty(((channels + 1) // 2, n, 2))
    four_step_static_grad_kernel[(pairs.shape[0],)](
        dstatic, edges, pairs, channels, parts, **_sizes(shape), num_warps=shape.warps
    )
    return inverse_complex_dft(pairs)


def _steps(batch: int, channels: int, shape: Shape, programs: int) -> tuple[int, int]:
    """Return how many tiles a program goes through, and into how many parts they fall."""
    tiles = cdiv(batch, shape.rows)
    steps = cdiv(tiles, min(tiles, cdiv(programs, channels)))
    return steps, cdiv(tiles, steps)


def _sizes(shape: Shape) -> dict[str, int]:
    return {"N1": shape.n1, "N2": shape.n2, "S": shape.rows}


def _settings(given: Operands, shape: Shape) -> dict[str, Any]:
    padded = given.pad is not None
    return {
        "FULL": given.length == given.n and not padded, "HAS_PAD": padded, **_sizes(shape), **given.time(),
        "num_warps": shape.warps, "num_stages": 1,
    }  # fmt: skip
