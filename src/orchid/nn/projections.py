"""Linear layers between (B, L, D) and (B, D, L).

The layers are the library's ``nn.Linear``, whose matrix is taken in the order that transforms and kernels want. What
stands in the place of one (an adapter, a quantised layer), or is watched by hooks, is called as a layer instead.
"""

import torch
from torch import Tensor, nn

from orchid.ops.kernels.surroundings import hooked


def is_plain(linear: nn.Module) -> bool:
    """Return whether a layer is a linear map and nothing else."""
    return type(linear) is nn.Linear and linear.bias is not None and not hooked(linear)


def to_channels(linear: nn.Module, x: Tensor, out_features: int | None = None, *, biased: bool = True) -> Tensor:
    """Return W x^T + b, channels first: (B, L, in) -> (B, out, L).

    One matrix product whatever the batch, stored channel by channel: no transposed copy, and rows for the transforms.

    Args:
        linear: the layer.
        x: its input.
        out_features: take the first that many features only.
        biased: without, the bias is left to the reader, who finds it by ``bias_of``: the fused kernels add it.
    """
    if not is_plain(linear):
        y = linear(x)
        return (y if out_features is None else y[..., :out_features]).transpose(1, 2).contiguous()
    weight, bias = linear.weight, linear.bias
    assert isinstance(weight, Tensor) and isinstance(bias, Tensor)
    if out_features is not None:  # a slice of everything would still cost a copy of its gradient
        weight, bias = weight[:out_features], bias[:out_features]
    rows = x.flatten(0, 1).T
    y = torch.addmm(bias[:, None], weight, rows) if biased else weight @ rows
    return y.unflatten(1, x.shape[:2]).transpose(0, 1)


def bias_of(linear: nn.Module, projected: Tensor) -> Tensor:
    """Return the bias, (out,), that ``to_channels`` has left out of ``projected`` (B, out, L)."""
    bias = linear.bias if is_plain(linear) else projected.new_zeros(projected.shape[1])
    assert isinstance(bias, Tensor)
    return bias


def from_channels(linear: nn.Module, x: Tensor) -> Tensor:
    """Return the linear layer of what stands channels first, with no transposed copy: (B, in, L) -> (B, L, out)."""
    if not is_plain(linear):
        y: Tensor = linear(x.transpose(1, 2))
        return y
    weight, bias = linear.weight, linear.bias
    assert isinstance(weight, Tensor) and isinstance(bias, Tensor)
    by_channel = x.transpose(0, 1)
    if by_channel.is_contiguous():  # one matrix; else one for each sample
        y = nn.functional.linear(by_channel.flatten(1).T, weight, bias)
        return y.unflatten(0, (x.shape[0], x.shape[2]))
    return torch.baddbmm(bias, x.transpose(1, 2), weight.T.expand(x.shape[0], -1, -1))
