"""The two halves of a block-diagonal MLP on a GPU: its hidden layer is stored block by block, and never copied.

A product of blocks reads and writes tokens (T, D) in place, a block of columns each; between the two products biases,
gelu and gate are one pass over the hidden layer.
"""

from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, on_device_of, power_of_two
from orchid.ops.kernels.library import operator
from orchid.ops.kernels.mlp.activation import activation_grad_kernel, activation_kernel
from orchid.ops.kernels.mlp.token_products import token_products
from orchid.ops.kernels.totals import added_up
from orchid.ops.precision import full_precision

# Numbers of a tile, its most columns, and programs wanted in a launch that sums over rows.
TILE, COLUMNS, PROGRAMS = 2048, 256, 2048


def block_hidden(x: Tensor, up: Tensor, up_bias: Tensor, gate: Tensor | None, gate_bias: Tensor | None) -> Tensor:
    """Return gelu(x U^T + b), times x G^T + c where there is a gate.

    Args:
        x: (T, D).
        up: (blocks, H / blocks, D / blocks), the blocks of U.
        up_bias: (H,).
        gate: likewise, of G, or None.
        gate_bias: (H,) or None.

    Returns:
        (blocks, T, H / blocks).
    """
    gate_bias = None if gate_bias is None else gate_bias.contiguous()
    return _hidden(x.contiguous(), up, up_bias.contiguous(), gate, gate_bias)[0]


def from_blocks(hidden: Tensor, down: Tensor, bias: Tensor) -> Tensor:
    """Return h W^T + b, (T, D), of a hidden layer (blocks, T, H / blocks) and blocks of W (blocks, D / blocks, ...)."""
    return _from_blocks(hidden, down, bias)


@operator("block_hidden")
def _hidden(
    x: Tensor, up: Tensor, up_bias: Tensor, gate: Tensor | None, gate_bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the hidden layer, and the products u and g (empty without a gate)."""
    by_token = _columns(x, up.shape[0])
    with on_device_of(x), full_precision(x):
        u = torch.bmm(by_token, up.transpose(1, 2))
        g = u.new_empty(0) if gate is None else torch.bmm(by_token, gate.transpose(1, 2))
        out, (blocks, size, width) = torch.empty_like(u), u.shape
        tile = _tile(width)
        activation_kernel[(cdiv(size, tile["ROWS"]), cdiv(width, tile["COLUMNS"]), blocks)](
            u, up_bias, g, up_bias if gate_bias is None else gate_bias, out, size, width,
            GATED=gate is not None, **tile,
        )  # fmt: skip
    return out, u, g


@_hidden.register_fake
def _(x, up, up_bias, gate, gate_bias):  # type: ignore[no-untyped-def]
    u = x.new_empty((up.shape[0], x.shape[0], up.shape[1]))
    return u, torch.empty_like(u), x.new_empty(0) if gate is None else torch.empty_like(u)


@operator("block_hidden_backward")
def _hidden_backward(
    dy: Tensor, x: Tensor, up: Tensor, up_bias: Tensor, gate: Tensor | None, gate_bias: Tensor | None,
    u: Tensor, g: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    blocks, size, width = u.shape
    du, dg, gated = torch.empty_like(u), torch.empty_like(g), gate is not None
    tile = _tile(width)
    columns, rows = cdiv(width, tile["COLUMNS"]), cdiv(size, tile["ROWS"])
    steps = max(1, columns * rows * blocks // PROGRAMS)
    parts = cdiv(rows, steps)
    sums = u.new_empty((parts, blocks, width), dtype=torch.float32)
    gate_sums = torch.empty_like(sums) if gated else sums
    with on_device_of(x), full_precision(x):
        activation_grad_kernel[(parts, columns, blocks)](
            dy.contiguous(), u, up_bias, g, up_bias if gate_bias is None else gate_bias, du, dg, sums, gate_sums,
            size, width, steps, GATED=gated, **tile,
        )  # fmt: skip
        dx = torch.empty_like(x)
        torch.bmm(du, up, out=_columns(dx, blocks))
        by_token = _columns(x, blocks)
        dup, dup_bias = token_products(du, by_token), added_up(sums, torch.empty_like(up_bias))
        dgate, dgate_bias = g.new_empty(0), up_bias.new_empty(0)
        if gate is not None:
            _columns(dx, blocks).baddbmm_(dg, gate)
            dgate, dgate_bias = token_products(dg, by_token), added_up(gate_sums, torch.empty_like(up_bias))
    return dx, dup, dup_bias, dgate, dgate_bias


@_hidden_backward.register_fake
def _(dy, x, up, up_bias, gate, gate_bias, u, g):  # type: ignore[no-untyped-def]
    gates = (g.new_empty(0), up_bias.new_empty(0)) if gate is None else (torch.empty_like(gate), gate_bias.clone())
    return torch.empty_like(x), torch.empty_like(up), torch.empty_like(up_bias), *gates


def _keep_hidden(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)  # u and g have no gradients of their own
    ctx.save_for_backward(*inputs, *output[1:])


def _back_from_hidden(ctx: Any, dy: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 5
    saved = ctx.saved_tensors  # once: under checkpointing asking again is an error
    dx, dup, dup_bias, dgate, dgate_bias = _hidden_backward(dy, *saved)
    gated = saved[3] is not None
    return dx, dup, dup_bias, dgate if gated else None, dgate_bias if gated else None


_hidden.register_autograd(_back_from_hidden, setup_context=_keep_hidden)


@operator("from_blocks")
def _from_blocks(hidden: Tensor, down: Tensor, bias: Tensor) -> Tensor:
    y = hidden.new_empty(hidden.shape[1], bias.shape[0])
    y.copy_(bias)  # a copy whatever the sizes: what follows adds to it in place
    with on_device_of(hidden), full_precision(hidden):
        _columns(y, down.shape[0]).baddbmm_(hidden, down.transpose(1, 2))
    return y


@_from_blocks.register_fake
def _(hidden, down, bias):  # type: ignore[no-untyped-def]
    return hidden.new_empty((hidden.shape[1], bias.shape[0]))


@operator("from_blocks_backward")
def _from_blocks_backward(dy: Tensor, hidden: Tensor, down: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    with on_device_of(dy), full_precision(dy):
        dy = dy.contiguous()
        # first: a kernel makes the context that cuBLAS misses in a fresh autograd thread
        dbias, by_token = added_up(dy, torch.empty_like(bias)), _columns(dy, down.shape[0])
        return torch.bmm(by_token, down), token_products(by_token, hidden), dbias


@_from_blocks_backward.register_fake
def _(dy, hidden, down, bias):  # type: ignore[no-untyped-def]
    return torch.empty_like(hidden), torch.empty_like(down), torch.empty_like(bias)


def _keep_from_blocks(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _back_from_blocks(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dhidden, ddown, dbias = _from_blocks_backward(dy, *ctx.saved_tensors)
    return dhidden, ddown, dbias


_from_blocks.register_autograd(_back_from_blocks, setup_context=_keep_from_blocks)


def _columns(x: Tensor, blocks: int) -> Tensor:
    """Return the blocks of columns of (T, D) as (blocks, T, D / blocks), in place."""
    return x.unflatten(1, (blocks, -1)).transpose(0, 1)


def _tile(width: int) -> dict[str, int]:
    """Return rows and columns of a tile of a hidden layer so wide."""
    columns = min(COLUMNS, power_of_two(width))
    return {"ROWS": max(1, TILE // columns), "COLUMNS": columns}
