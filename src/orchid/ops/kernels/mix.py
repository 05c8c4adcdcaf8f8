"""The fused layer between its projections, as one differentiable operator of the library.

The projected streams are kept for the backward pass, and the static kernel's spectrum where it is small; the rest is
computed again.
"""

import math
from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.launch import on_device_of
from orchid.ops.kernels.library import operator
from orchid.ops.kernels.operands import Decay, Operands
from orchid.ops.kernels.passes import backward, by_channel, empty_kept, forward
from orchid.ops.precision import full_precision


def fused_mix(
    p: Tensor,
    u: Tensor | None,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor,
    spatial: Tensor,
    spectral: Tensor,
    hidden: Tensor | None,
    output: Tensor | None,
    delta: Tensor,
    static: Tensor | None,
    *,
    pad: Tensor | None,
    u_pad: Tensor | None,
    n: int,
    period: int,
    padding: str,
    norm: str,
    decay: Decay,
    mirrored: bool = False,
) -> Tensor:
    """Return y = s_2 * ((h0 + hx(u)) conv (s_1 * v)), with v, s_1, s_2 the short-convolved thirds of p.

    Args:
        p: (B, 3 D, L), the projected streams v, s_1, s_2 before the projection's bias, masks and short convolutions.
        u: (B, D, M), the conditioning sequence, likewise; None is the first third of p.
        offset: (3 D,), the projection's bias.
        weight: (3 D, K), taps of the short convolutions.
        bias: (3 D,).
        spatial: (sides, D, K), taps of Conv1d_t: none (static), one (phase) or two (cross: key, query).
        spectral: (D, K), taps of Conv1d_f; not read when static.
        hidden: (n, W), the static kernel's network before its output; None where ``static`` is given.
        output: (D, W), that output.
        delta: (D,), the tap added to the spectrum.
        static: (D, n / 2 + 1, 2), ``mirrored`` (D, n + 1, 2), the spectrum h0_f of these, where the layer is frozen:
            the same tensor at every call is put in the kernels' order once.
        pad: (B, L) bool, True at masked positions, or None.
        u_pad: likewise (B, M) beside ``u``.
        n: transform length.
        period: N, the circle of the short convolutions.
        padding: "causal", "same" or "circular".
        norm: of the conditioning network's transform.
        decay: of the static kernel.
        mirrored: whether the transform is the DCT-II, by the DFT of rows of 2 n (``Operands``).

    Returns:
        (B, D, L) in the dtype of p, stored channel by channel.
    """
    n = 2 * n if mirrored else n
    scale = 1 / math.sqrt(n) if norm == "ortho" else 1.0
    tensors = (offset, weight, bias, spatial, spectral, delta)
    offset, weight, bias, spatial, spectral, delta = (t.contiguous() for t in tensors)
    hidden, output = (None if t is None else t.contiguous() for t in (hidden, output))
    static = None if static is None else static.contiguous()
    pad, u_pad = (None if t is None else t.contiguous().view(torch.uint8) for t in (pad, u_pad))
    result, _, _ = _mix(
        p, u, pad, u_pad, offset, weight, bias, spatial, spectral, hidden, output, delta, static,
        n, period, padding, scale, list(decay), mirrored,
    )  # fmt: skip
    return result


@operator("mix")
def _mix(
    p: Tensor,
    u: Tensor | None,
    pad: Tensor | None,
    u_pad: Tensor | None,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor,
    spatial: Tensor,
    spectral: Tensor,
    hidden: Tensor | None,
    output: Tensor | None,
    delta: Tensor,
    static: Tensor | None,
    n: int,
    period: int,
    padding: str,
    scale: float,
    decay: list[float],
    mirrored: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, and what is kept of the static kernel."""
    given = Operands(
        p, u, pad, u_pad, offset, weight, bias, spatial, spectral, hidden, output, delta, static,
        n, period, padding, scale, Decay(*decay), mirrored,
    )  # fmt: skip
    with on_device_of(p), full_precision(p):
        return forward(given)


@_mix.register_fake
def _(p, u, pad, u_pad, offset, weight, bias, spatial, spectral, hidden, output, delta, static, n, *settings):  # type: ignore[no-untyped-def]
    period, padding, scale, decay, mirrored = settings
    given = Operands(
        p, u, pad, u_pad, offset, weight, bias, spatial, spectral, hidden, output, delta, static,
        n, period, padding, scale, Decay(*decay), mirrored,
    )  # fmt: skip
    return by_channel(p, given.channels, given.length), *empty_kept(given)


@operator("mix_backward")
def _mix_backward(
    dy: Tensor,
    p: Tensor,
    u: Tensor | None,
    pad: Tensor | None,
    u_pad: Tensor | None,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor,
    spatial: Tensor,
    spectral: Tensor,
    hidden: Tensor | None,
    output: Tensor | None,
    delta: Tensor,
    static: Tensor | None,
    kept: Tensor,
    kept_scales: Tensor,
    n: int,
    period: int,
    padding: str,
    scale: float,
    decay: list[float],
    mirrored: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    given = Operands(
        p, u, pad, u_pad, offset, weight, bias, spatial, spectral, hidden, output, delta, static,
        n, period, padding, scale, Decay(*decay), mirrored,
    )  # fmt: skip
    with on_device_of(p), full_precision(p):
        return backward(given, dy, (kept, kept_scales))


@_mix_backward.register_fake
def _(dy, p, u, pad, u_pad, offset, weight, bias, spatial, spectral, hidden, output, delta, *settings):  # type: ignore[no-untyped-def]
    du = p.new_empty(0) if u is None else by_channel(u, u.shape[1], u.shape[2])
    dhidden = delta.new_empty(0) if hidden is None else torch.empty_like(hidden)
    doutput = delta.new_empty(0) if output is None else torch.empty_like(output)
    small = [torch.empty_like(t) for t in (offset, weight, bias, spatial, spectral)]
    return (by_channel(p, p.shape[1], p.shape[2]), du, *small, dhidden, doutput, torch.empty_like(delta))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, n, period, padding, scale, decay, mirrored = inputs
    ctx.set_materialize_grads(False)  # the kept spectrum has no gradient of its own
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.settings = (n, period, padding, scale, decay, mirrored)


def _backward(ctx: Any, dy: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 19
    saved = ctx.saved_tensors
    dp, du, *small, dhidden, doutput, ddelta = _mix_backward(dy, *saved, *ctx.settings)
    fixed = saved[-6] is None  # hidden, output, delta, static, kept, kept_scales
    return (
        dp, None if saved[1] is None else du, None, None, *small,
        None if fixed else dhidden, None if fixed else doutput, None if fixed else ddelta,
        *[None] * 7,
    )  # fmt: skip


_mix.register_autograd(_backward, setup_context=_setup_context)
