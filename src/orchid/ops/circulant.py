"""Short circular convolutions as matrix products, one for each channel: what a GPU does fastest in half precision."""

from typing import Any

import torch
from torch import Tensor

from orchid.ops.forward_mode import applied
from orchid.ops.kernels.launch import TRITON
from orchid.ops.kernels.surroundings import transformed
from orchid.ops.precision import working_dtype

# Up to this length a product with an n x n matrix for each channel is faster than transforms, on a GPU.
LONGEST = 256


class _CirculantConv(torch.autograd.Function):
    """y[b, d, i] = sum_j h[d, (i - j) mod n] x[b, d, j], with the matrix in the dtype of x, sums in float32.

    The adjoints are the transposed matrix, and sums of x^T dy along wrapped diagonals: no atomics.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, h: Tensor) -> Tensor:
        return torch.bmm(_by_channel(x), _matrix(h, x.shape[2], x.dtype)).transpose(0, 1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, h = ctx.saved_tensors
        tokens = _in_tokens(x)
        x, dy = _by_channel(x), _by_channel(gradients[0])
        length, n = x.shape[2], h.shape[1]
        dx = torch.bmm(dy, _matrix(h, length, x.dtype).transpose(1, 2))
        lags = torch.arange(n, device=h.device)[:, None]
        to = (torch.arange(length, device=h.device) + lags) % n  # (n, L): where lag k takes position j
        wide = torch.float32 if x.dtype == torch.float16 else x.dtype  # sums over the batch leave float16's range
        products = torch.bmm(x.transpose(1, 2).to(wide), dy.to(wide))  # (D, from, to)
        met = products.gather(2, to.clamp(max=length - 1).T.expand(x.shape[0], -1, -1))
        dh = met.masked_fill((to >= length).T, 0).sum(dim=1, dtype=h.dtype)
        return _by_token(dx) if tokens else dx.transpose(0, 1), dh


def _in_tokens(x: Tensor) -> bool:
    """Return whether x (B, D, L) is stored token by token, on a device that turns it by a kernel."""
    alone = torch.compiler.is_compiling() or not transformed()
    return x.is_cuda and TRITON and x.transpose(1, 2).is_contiguous() and alone


def _by_channel(x: Tensor) -> Tensor:
    """Return x (B, D, L) as (D, B, L), contiguous."""
    if not _in_tokens(x):
        return x.transpose(0, 1).contiguous()
    from orchid.ops.kernels.transpose import transposed

    return transposed(x.transpose(1, 2).flatten(0, 1)).unflatten(1, (x.shape[0], x.shape[2]))


def _by_token(x: Tensor) -> Tensor:
    """Return x (D, B, L), contiguous, as (B, D, L) stored token by token."""
    from orchid.ops.kernels.transpose import transposed

    return transposed(x.flatten(1)).unflatten(0, x.shape[1:]).transpose(1, 2)


def _matrix(h: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Return h[d, (i - j) mod n] as (D, j, i)."""
    t = torch.arange(length, device=h.device)
    return h.to(dtype)[:, (t - t[:, None]) % h.shape[1]]


def circulant_conv(x: Tensor, h: Tensor) -> Tensor:
    """Return the circular convolution of x (B, D, L) with kernels h (D, n), L <= n, on the first L samples.

    The result has the dtype of x and is stored channel by channel.
    """
    y: Tensor = applied(_CirculantConv, x, h)
    return y


def product_dtype(x: Tensor, n: int) -> torch.dtype | None:
    """Return the half precision in which ``circulant_conv`` should take a convolution of length n, or None."""
    if not x.is_cuda or x.dtype == torch.float64 or n > LONGEST:
        return None
    dtype = working_dtype(x)
    return dtype if dtype in (torch.bfloat16, torch.float16) else None
