"""A static convolution of tokens added to channels, y = x + h0 conv u: Orchid-BERT's residual long convolution.

Powers of two to 8,192 in bfloat16 take one kernel (``four_step/conv.py``), after a transpose. Otherwise two channels
are one complex row, as in the fused layer: tokens are turned into rows where they are read, the sum is taken where rows
become channels, so nothing but the transforms passes over the data between.
"""

from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.around_fft.products import write_product_gradients, write_products
from orchid.ops.kernels.four_step import path as four_step
from orchid.ops.kernels.launch import cdiv, on_device_of
from orchid.ops.kernels.library import operator
from orchid.ops.kernels.operands import Decay, Static
from orchid.ops.kernels.passes import by_channel, chunk_step, chunks, frozen_rows, small_static
from orchid.ops.kernels.static.rows import (
    add_rows_kernel,
    channels_to_rows_kernel,
    rows_to_tokens_kernel,
    tokens_to_rows_kernel,
)
from orchid.ops.kernels.static.spectra import StaticGradients, static_of, static_spectra
from orchid.ops.kernels.transpose import transposed
from orchid.ops.precision import full_precision
from orchid.ops.transforms import complex_dft, inverse_complex_dft

# Elements (channels x batch x n) of a chunk.
CHUNK = 5 * 2**21
# Pairs of channels and positions of a tile.
TILE = {"PAIRS": 16, "BLOCK": 64}


def plus_static_conv(x: Tensor, u: Tensor, kernel: Static) -> Tensor:
    """Return x + h0 conv u on the circle of n.

    Args:
        x: (B, D, L), contiguous along L.
        u: (B, L, D), contiguous along D, L <= n.
        kernel: h0 with its delta tap.

    Returns:
        (B, D, L) in the dtype of x, stored channel by channel.
    """
    n, parts = kernel.n, (kernel.hidden, kernel.output, kernel.delta, kernel.kept)
    tensors = (None if t is None else t.contiguous() for t in parts)
    if four_step.serves_rows(n, x):
        u = u.to(x.dtype)  # under autocast tokens are float32, as they are for the projection
    u = u if u.stride(2) == 1 else u.contiguous()
    return _conv(x if x.stride(2) == 1 else x.contiguous(), u, *tensors, n, list(kernel.decay))[0]


@operator("plus_static_conv")
def _conv(
    x: Tensor, u: Tensor, hidden: Tensor | None, output: Tensor | None, delta: Tensor, kept: Tensor | None,
    n: int, decay: list[float],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the sum, and T h0 of two channels a row where it is small enough to be kept, else nothing."""
    kernel = Static(hidden, output, delta, kept, n, Decay(*decay), x.dtype == torch.bfloat16)
    batch, channels, length = x.shape
    with on_device_of(x), full_precision(x):
        y, small = by_channel(x, channels, length), kept is None and small_static(channels, n)
        spectrum = static_spectra(kernel, 0, channels) if small else delta.new_empty(0, dtype=torch.float32)
        if u.dtype == x.dtype and four_step.serves_rows(n, x) and (small or kept is not None):
            four_step.write_plus_conv(n, _in_order(kernel, spectrum), _by_channel(u), x, y)
            return y, spectrum
        for first, last in chunks(channels, chunk_step(channels, batch * n, CHUNK)):
            signals = _rows(u, last - first, 1, n)
            _write_tokens(u, signals, first, last)
            static = static_of(kernel, spectrum, first, last)
            products = torch.empty_like(signals)
            write_products(
                complex_dft(signals), static, delta, delta[:, None], products, first, 1.0, kept=kept is not None
            )
            add_rows_kernel[_grid(length, batch, last - first)](
                inverse_complex_dft(products), x, y, first, last, batch, length, 2 * n, *x.stride()[:2],
                *y.stride()[:2], **TILE,
            )  # fmt: skip
    return y, spectrum


@_conv.register_fake
def _(x, u, hidden, output, delta, kept, n, decay):  # type: ignore[no-untyped-def]
    _, channels, length = x.shape
    small = kept is None and small_static(channels, n)
    spectrum = delta.new_empty(((channels + 1) // 2, n, 2) if small else 0, dtype=torch.float32)
    return by_channel(x, channels, length), spectrum


@operator("static_conv_backward")
def _conv_backward(
    dy: Tensor, u: Tensor, hidden: Tensor | None, output: Tensor | None, delta: Tensor, kept: Tensor | None,
    spectrum: Tensor, n: int, decay: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of u, hidden, output and delta; those of absent arguments are empty."""
    kernel = Static(hidden, output, delta, kept, n, Decay(*decay), dy.dtype == torch.bfloat16)
    batch, channels, length = dy.shape
    with on_device_of(dy), full_precision(dy):
        dy = dy if dy.stride(2) == 1 else dy.contiguous()
        if u.dtype == dy.dtype and four_step.serves_rows(n, dy) and (spectrum.numel() or kept is not None):
            grads = StaticGradients(kernel, channels)
            rows, dstatic = four_step.conv_gradients(n, _in_order(kernel, spectrum), _by_channel(u), dy)
            grads.add(0, channels, dstatic)
            return transposed(rows.view(channels, -1)).view(u.shape), *grads.total()
        du = torch.empty(u.shape, dtype=u.dtype, device=u.device)
        step = chunk_step(channels, batch * n, CHUNK)
        grads = StaticGradients(kernel, step)
        for first, last in chunks(channels, step):
            signals, products = _rows(u, last - first, 2, n), _rows(u, last - first, 1, n)
            _write_tokens(u, signals, first, last)
            channels_to_rows_kernel[_grid(n, batch, last - first)](
                dy, signals[:, :, 1], first, last, batch, length, n, 4 * n, *dy.stride()[:2], **TILE
            )
            static = static_of(kernel, spectrum, first, last)
            rows, _ = write_product_gradients(
                complex_dft(signals), static, delta, delta[:, None], products, first, 1.0, kept=kept is not None
            )
            grads.add(first, last, rows)
            rows_to_tokens_kernel[_grid(length, batch, last - first)](
                inverse_complex_dft(products), du, first, last, batch, length, 2 * n, *du.stride()[:2], **TILE
            )
        return du, *grads.total()


@_conv_backward.register_fake
def _(dy, u, hidden, output, delta, kept, spectrum, n, decay):  # type: ignore[no-untyped-def]
    absent = delta.new_empty(0)
    du = torch.empty(u.shape, dtype=u.dtype, device=u.device)
    dhidden, doutput = (absent if t is None else torch.empty_like(t) for t in (hidden, output))
    return du, dhidden, doutput, torch.empty_like(delta)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, *tensors, n, decay = inputs
    ctx.set_materialize_grads(False)  # the kept spectrum has no gradient of its own
    ctx.save_for_backward(*tensors, output[1])
    ctx.settings = (n, decay)


def _back(ctx: Any, dy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 8
    saved = ctx.saved_tensors  # once: under checkpointing asking again is an error
    du, dhidden, doutput, ddelta = _conv_backward(dy, *saved, *ctx.settings)
    grads = (None, None, None) if saved[1] is None else (dhidden, doutput, ddelta)
    return dy, du, *grads, None, None, None


_conv.register_autograd(_back, setup_context=_keep)


def _in_order(kernel: Static, spectrum: Tensor) -> tuple[Tensor, Tensor]:
    """Return h0_f as ``four_step`` reads it: a frozen one is put in order once, T h0 at every call."""
    if kernel.kept is not None:
        return frozen_rows(kernel, four_step)
    return four_step.static_rows(kernel, spectrum, 0, kernel.delta.shape[0])


def _by_channel(u: Tensor) -> Tensor:
    """Return tokens u (B, L, D) as channels (D, B, L)."""
    batch, length, channels = u.shape
    return transposed(u.reshape(batch * length, channels)).view(channels, batch, length)


def _rows(like: Tensor, channels: int, count: int, n: int) -> Tensor:
    """Return room for the rows of a chunk, (pairs, B, count, n, 2)."""
    return like.new_empty(((channels + 1) // 2, like.shape[0], count, n, 2), dtype=torch.float32)


def _write_tokens(u: Tensor, rows: Tensor, first: int, last: int) -> None:
    """Write a chunk of tokens u (B, L, D) as the first rows of (pairs, B, count, n, 2)."""
    batch, length, _ = u.shape
    n = rows.shape[3]
    tokens_to_rows_kernel[_grid(n, batch, last - first)](
        u, rows, first, last, batch, length, n, rows.shape[2] * 2 * n, *u.stride()[:2], **TILE
    )


def _grid(length: int, batch: int, channels: int) -> tuple[int, int]:
    """Return the programs of a launch; a batch may be larger than the second axis."""
    return cdiv(length, TILE["BLOCK"]) * batch, cdiv(channels, 2 * TILE["PAIRS"])
