"""Launches of the passes in octets: for rows that ``Operands.in_octets`` allows."""

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv
from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.streams.gradients import octet_grad_kernel
from orchid.ops.kernels.streams.signals import octet_gate_kernel, octet_signals_kernel

# Octets a program takes at a time.
OCTETS = 128
# Programs wanted in a launch whose programs sum.
PROGRAMS = 4096


def write_signals(given: Operands, first: int, pairs: int, signals: Tensor, dy: Tensor | None) -> None:
    """Write a, the conditioning sequences and with dy dc of a chunk, (pairs, B, rows, n, 2)."""
    p, octets = given.p, given.n // 8
    grad = p if dy is None else dy
    octet_signals_kernel[(cdiv(given.batch * octets, OCTETS), pairs)](
        p, grad, given.offset, given.weight, given.bias, given.spatial, given.address(given.pad), signals,
        first, given.channels, given.batch, given.length // 8, given.period // 8, octets,
        *p.stride()[:2], *grad.stride()[:2],
        SIDES=given.sides, GRAD=dy is not None, HAS_PAD=given.pad is not None, BLOCK=OCTETS, num_warps=OCTETS // 32,
        **given.time(),
    )  # fmt: skip


def write_gated(given: Operands, first: int, pairs: int, c: Tensor, y: Tensor) -> None:
    """Write a chunk's part of y (B, D, L) from c (pairs, B, n, 2)."""
    p, octets = given.p, given.length // 8
    octet_gate_kernel[(cdiv(given.batch * octets, OCTETS), pairs)](
        p, given.offset, given.weight, given.bias, c, given.address(given.pad), y,
        first, given.channels, given.batch, octets, given.period // 8, given.n // 8, *p.stride()[:2], *y.stride()[:2],
        HAS_PAD=given.pad is not None, BLOCK=OCTETS, num_warps=OCTETS // 32, **given.time(),
    )  # fmt: skip


def streams_gradients(given: Operands, first: int, last: int, dy: Tensor, grads: Tensor, dp: Tensor) -> Tensor:
    """Write a chunk's part of dp (B, 3 D, L) from ``grads``, as one kernel leaves them.

    Returns what its programs have summed, (channels, parts, 1, count).
    """
    p, channels, octets = given.p, last - first, given.length // 8
    blocks = cdiv(given.batch * octets, OCTETS)
    steps = max(1, min(64, channels * blocks // PROGRAMS))
    parts = cdiv(blocks, steps)
    count = 3 * (given.taps + 1) + 3 + given.sides * given.taps
    partial = grads.new_empty((channels, parts, 1, count), dtype=torch.float32)
    octet_grad_kernel[(channels, parts)](
        p, dy, given.offset, given.weight, given.bias, given.spatial, grads, given.address(given.pad), dp, partial,
        first, given.channels, given.batch, octets, given.period // 8,
        *p.stride()[:2], *dy.stride()[:2], *dp.stride()[:2],
        SIDES=given.sides, HAS_PAD=given.pad is not None, steps=steps, BLOCK=OCTETS, num_warps=OCTETS // 32,
        **given.time(),
    )  # fmt: skip
    return partial
