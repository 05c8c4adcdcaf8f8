"""The first-order linear recurrence h[t] = a[t] h[t-1] + b[t], in O(log L) parallel steps."""

from typing import Any

import torch
from torch import Tensor

from orchid.ops.forward_mode import applied


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """Return h with h[t] = a[t] h[t-1] + b[t] and h[-1] = 0 along axis 1.

    Args:
        a: (B, L, ...).
        b: (B, L, ...), the same shape.

    Returns:
        h (B, L, ...).
    """
    h: Tensor = applied(_LinearScan, a, b)
    return h


class _LinearScan(torch.autograd.Function):
    """The recurrence and its adjoint, which is the recurrence run backwards: only a and h are kept.

    With g the gradient of h: G[t] = g[t] + a[t+1] G[t+1], then db = G and da[t] = G[t] h[t-1].
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        return _scan(a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        a, h = ctx.saved_tensors
        after = torch.cat((a[:, 1:], torch.zeros_like(a[:, :1])), dim=1)
        total = _scan(after.flip(1), gradients[0].flip(1)).flip(1)
        before = torch.cat((torch.zeros_like(h[:, :1]), h[:, :-1]), dim=1)
        return total * before, total


def _scan(a: Tensor, b: Tensor) -> Tensor:
    """Solve the recurrence by cyclic reduction: pairs of steps are one step of a recurrence of half the length.

    h[2i+1] = (a[2i+1] a[2i]) h[2i-1] + (a[2i+1] b[2i] + b[2i+1]): solved recursively, then the even steps follow.
    """
    length = b.shape[1]
    if length == 1:
        return b.clone()
    pairs = length // 2
    even_a, odd_a = a[:, 0 : 2 * pairs : 2], a[:, 1 : 2 * pairs : 2]
    even_b, odd_b = b[:, 0 : 2 * pairs : 2], b[:, 1 : 2 * pairs : 2]
    odd = _scan(odd_a * even_a, torch.addcmul(odd_b, odd_a, even_b))
    carried = odd[:, : (length - 1) // 2]
    even = torch.cat((b[:, :1], torch.addcmul(b[:, 2::2], a[:, 2::2], carried)), dim=1)
    h = torch.stack((even[:, :pairs], odd), dim=2).flatten(1, 2)
    return torch.cat((h, even[:, pairs:]), dim=1)
