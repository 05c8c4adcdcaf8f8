"""The fused layer between its projections, as one differentiable operator: Triton kernels around the library's FFT.

Forward:  gate_in -> FFT -> mix -> inverse FFT -> gate_out.
Backward: gate_out_grad -> FFT -> mix_grad -> inverse FFTs -> streams_grad, condition_grad.

Kept for the backward pass: the projected streams, the spectra of a and of the conditioning sequences (float32), and the
convolution's output in the dtype of the streams. Everything else is computed again. All sums have a fixed order: the
results are the same bits from run to run.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from orchid.ops.kernels import dense, four_step
from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.spectrum import mix_grad_kernel, mix_kernel
from orchid.ops.kernels.time_domain import (
    condition_grad_kernel,
    gate_in_kernel,
    gate_out_grad_kernel,
    gate_out_kernel,
    streams_grad_kernel,
)
from orchid.ops.transforms import get_transform

TIME_BLOCK, BIN_BLOCK = 1024, 256
# Programs wanted in a launch that sums over the batch: enough to fill a large GPU.
PROGRAMS = 2048
DFT = get_transform("dft")


def fused_mix(
    p: Tensor,
    u: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    spatial: Tensor,
    spectral: Tensor,
    h0_f: Tensor,
    *,
    pad: Tensor | None,
    u_pad: Tensor | None,
    period: int,
    padding: str,
    norm: str,
) -> Tensor:
    """Return y = s_2 * ((h0 + hx(u)) conv (s_1 * v)), with v, s_1, s_2 the short-convolved thirds of p.

    Args:
        p: (B, 3 D, L), the projected streams v, s_1, s_2, before their masks and short convolutions.
        u: (B, D, M), the conditioning sequence; None is the first third of p.
        weight: (3 D, K), taps of the short convolutions.
        bias: (3 D,).
        spatial: (sides, D, K), taps of Conv1d_t: none (static), one (phase) or two (cross: key, query).
        spectral: (D, K), taps of Conv1d_f; not read when static.
        h0_f: (D, n / 2 + 1) complex, the static kernel's spectrum.
        pad: (B, L) bool, True at masked positions, or None.
        u_pad: likewise (B, M) beside ``u``.
        period: N, the circle's length; the transform is circular, n = N.
        padding: "causal", "same" or "circular".
        norm: of the conditioning network's transform.

    Returns:
        (B, D, L) in the dtype of p.
    """
    sides = spatial.shape[0]
    scale = 1 / math.sqrt(period) if norm == "ortho" else 1.0
    tensors = [weight, bias, spatial, spectral]
    weight, bias, spatial, spectral = (t.float().contiguous() for t in tensors)
    h0 = torch.view_as_real(h0_f).contiguous()
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in (p, weight, bias, spatial, spectral, h0))
    y, _, _ = _mix(p, u, pad, u_pad, weight, bias, spatial, spectral, h0, period, padding, scale, sides, keep)
    return y


@torch.library.custom_op("orchid::mix", mutates_args=())
def _mix(
    p: Tensor,
    u: Tensor | None,
    pad: Tensor | None,
    u_pad: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    spatial: Tensor,
    spectral: Tensor,
    h0: Tensor,
    period: int,
    padding: str,
    scale: float,
    sides: int,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    given = Operands(p, u, pad, u_pad, weight, bias, spatial, spectral, h0, period, padding, scale)
    inner = _inner(period, given.taps, sides, p.dtype)
    if inner is not None:  # nothing is kept, the backward pass computes it again
        return inner(given), p.new_empty(0, dtype=torch.float32), p.new_empty(0)
    spectra, c = _convolved(given)
    y = p.new_empty((given.batch, given.channels, given.length))
    kept = torch.empty_like(y) if keep else p.new_empty(0)
    gate_out_kernel[(given.rows, triton.cdiv(given.length, TIME_BLOCK))](
        p, weight, bias, c, given.address(pad), y, kept, given.channels, given.length, period, period, *p.stride(),
        K=given.taps, **given.time(), KEEP=keep, BLOCK=TIME_BLOCK,
    )  # fmt: skip
    return y, spectra if keep else spectra.new_empty(0), kept


def _inner(n: int, taps: int, sides: int, dtype: torch.dtype) -> Callable[[Operands], Tensor] | None:
    """Return the forward pass that has its transforms inside the kernels, where there is one for these settings."""
    return next((m.convolve for m in (dense, four_step) if m.serves(n, taps, sides, dtype)), None)


def _convolved(given: Operands) -> tuple[Tensor, Tensor]:
    """Return the spectra (B, D, 1 + sides, F, 2) and the convolution's output c (B, D, n), float32."""
    p, source, n, sides = given.p, given.source, given.n, given.sides
    signals = p.new_empty((given.batch, given.channels, 1 + sides, n), dtype=torch.float32)
    gate_in_kernel[(given.rows, triton.cdiv(n, TIME_BLOCK))](
        p, source, given.weight, given.bias, given.spatial, given.address(given.pad), given.address(given.source_pad),
        signals, given.channels, given.length, source.shape[2], n, n, *p.stride(), *source.stride(),
        SIDES=sides, K=given.taps, **given.time(), HAS_U_PAD=given.source_pad is not None, BLOCK=TIME_BLOCK,
    )  # fmt: skip
    spectra = torch.view_as_real(DFT.forward(signals, n, "backward"))
    product = spectra.new_empty((given.batch, given.channels, given.bins, 2))
    mix_kernel[(given.rows, triton.cdiv(given.bins, BIN_BLOCK))](
        spectra, given.h0, given.spectral, product, given.channels, given.bins, n, given.scale,
        SIDES=sides, K=given.taps, BLOCK=BIN_BLOCK,
    )  # fmt: skip
    return spectra, DFT.kernel(torch.view_as_complex(product), n)


@_mix.register_fake
def _(p, u, pad, u_pad, weight, bias, spatial, spectral, h0, period, padding, scale, sides, keep):  # type: ignore[no-untyped-def]
    batch, streams, length = p.shape
    y = p.new_empty((batch, streams // 3, length))
    if not keep or _inner(period, weight.shape[1], sides, p.dtype) is not None:
        return y, p.new_empty(0, dtype=torch.float32), p.new_empty(0)
    spectra = p.new_empty((batch, streams // 3, 1 + sides, period // 2 + 1, 2), dtype=torch.float32)
    return y, spectra, torch.empty_like(y)


@torch.library.custom_op("orchid::mix_backward", mutates_args=())
def _mix_backward(
    dy: Tensor,
    p: Tensor,
    u: Tensor | None,
    pad: Tensor | None,
    u_pad: Tensor | None,
    weight: Tensor,
    bias: Tensor,
    spatial: Tensor,
    spectral: Tensor,
    h0: Tensor,
    spectra: Tensor,
    kept: Tensor,
    period: int,
    padding: str,
    scale: float,
    sides: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of p, u (empty without u), weight, bias, spatial, spectral and h0."""
    given = Operands(p, u, pad, u_pad, weight, bias, spatial, spectral, h0, period, padding, scale)
    batch, channels, n, taps, length = given.batch, given.channels, given.n, given.taps, given.length
    time = {"K": taps, **given.time(), "BLOCK": TIME_BLOCK}
    dy = dy.contiguous()
    if not spectra.numel():
        spectra, kept = _convolved(given)
    dc = spectra.new_empty((batch, channels, n))
    gate_out_grad_kernel[(given.rows, triton.cdiv(n, TIME_BLOCK))](
        p, weight, bias, dy, given.address(pad), dc, channels, length, n, n, *p.stride(), **time,
    )  # fmt: skip
    e = torch.view_as_real(DFT.forward(dc, n, "backward"))
    del dc
    blocks = triton.cdiv(given.bins, BIN_BLOCK)
    groups = _divisor(batch, PROGRAMS // (channels * blocks))
    products = torch.empty_like(spectra)
    dh0 = spectra.new_empty((groups, *h0.shape))
    dspectral = spectra.new_empty((groups, blocks, channels, taps))
    mix_grad_kernel[(channels, blocks, groups)](
        spectra, e, h0, spectral, products, dh0, dspectral,
        channels, given.bins, n, scale, blocks,
        GROUP=batch // groups, SIDES=sides, K=taps, SLOTS=triton.next_power_of_2(taps), BLOCK=BIN_BLOCK,
    )  # fmt: skip
    del e
    grads = DFT.kernel(torch.view_as_complex(products), n)
    del products
    steps = triton.cdiv(length, TIME_BLOCK)
    dp = p.new_empty((batch, 3 * channels, length))
    shares = spectra.new_empty((batch, channels, steps, 3, taps + 1))
    streams_grad_kernel[(given.rows, steps)](
        p, weight, bias, dy, kept, grads, given.address(pad), dp, shares,
        channels, length, n, n, sides, kept.shape[-1], *p.stride(), steps, **time,
    )  # fmt: skip
    shares = shares.sum(dim=(0, 2)).transpose(0, 1)  # (3, D, K + 1)
    dweight, dbias = shares[..., :-1].flatten(0, 1), shares[..., -1].flatten()
    source, source_pad = given.source, given.source_pad
    du = dp if u is None else u.new_empty(u.shape)
    u_steps = triton.cdiv(source.shape[2], TIME_BLOCK)
    dspatial = spectra.new_zeros((batch, channels, u_steps, sides, taps))
    if sides:
        condition_grad_kernel[(given.rows, u_steps)](
            source, spatial, grads, given.address(source_pad), du, dspatial,
            channels, source.shape[2], n, n, *source.stride(), du.stride(0), u_steps,
            ADD=u is None, SIDES=sides, **(time | {"HAS_PAD": source_pad is not None}),
        )  # fmt: skip
    dspatial = dspatial.sum(dim=(0, 2)).transpose(0, 1).contiguous()
    return (
        dp,
        p.new_empty(0) if u is None else du,
        dweight.contiguous(),
        dbias.contiguous(),
        dspatial,
        dspectral.sum(dim=(0, 1)) if sides else torch.zeros_like(spectral),
        dh0.sum(dim=0),
    )


@_mix_backward.register_fake
def _(dy, p, u, pad, u_pad, weight, bias, spatial, spectral, h0, spectra, kept, period, padding, scale, sides):  # type: ignore[no-untyped-def]
    du = p.new_empty(0) if u is None else u.new_empty(u.shape)
    small = [torch.empty_like(t) for t in (weight, bias, spatial, spectral, h0)]
    return (p.new_empty(p.shape), du, *small)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.period, ctx.padding, ctx.scale, ctx.sides, _ = inputs
    _, spectra, kept = output
    ctx.save_for_backward(*tensors, spectra, kept)


def _backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    p, u, pad, u_pad, *rest = ctx.saved_tensors
    settings = (ctx.period, ctx.padding, ctx.scale, ctx.sides)
    dp, du, *small = _mix_backward(dy, p, u, pad, u_pad, *rest, *settings)
    return dp, None if u is None else du, None, None, *small, None, None, None, None, None


_mix.register_autograd(_backward, setup_context=_setup_context)


def _divisor(number: int, least: int) -> int:
    """Return the smallest divisor of ``number`` that is at least ``least``, or the number itself."""
    return next((d for d in range(max(1, least), number) if number % d == 0), number)
