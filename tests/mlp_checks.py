"""What the tests of the MLPs' kernels share."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orchid.nn.mlp import MLP


def gradients(mlp: MLP, call: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, Tensor]:
    """Return the output of a call, and the gradients of x and of every parameter for one from above."""
    x = x.detach().requires_grad_()
    torch.manual_seed(1)
    y = call(x)
    leaves = {"x": x, **dict(mlp.named_parameters())}
    upstream = torch.randn(y.shape, dtype=torch.float64).to(y)
    grads = torch.autograd.grad(y, list(leaves.values()), upstream)
    return {"y": y.detach(), **dict(zip(leaves, grads, strict=True))}


def layer_by_layer(mlp: MLP) -> Callable[[Tensor], Tensor]:
    """Return the MLP as its layers have it, without kernels."""

    def call(x: Tensor) -> Tensor:
        hidden = torch.nn.functional.gelu(mlp.up(x))
        return mlp.down(hidden if mlp.gate is None else hidden * mlp.gate(x))

    return call


def checkpointed(call: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a call that is computed again in the backward pass."""
    return lambda x: checkpoint(call, x, use_reentrant=False)
