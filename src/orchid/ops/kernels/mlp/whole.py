"""A block-diagonal MLP of small blocks, whole: one kernel forward, one backward, no hidden layer in memory.

An MLP of width 128 in four blocks has 128 numbers of a token in a block's hidden layer and 4,096 weights in either
matrix: both fit on a multiprocessor. Stored between two products, the hidden layer is eight times the input, written
and read five times in a step.
"""

from typing import Any

import torch
from torch import Tensor

from orchid.ops.kernels.launch import cdiv, on_device_of, power_of_two
from orchid.ops.kernels.library import operator
from orchid.ops.kernels.mlp.whole_kernels import whole_mlp_grad_kernel, whole_mlp_kernel
from orchid.ops.kernels.totals import added_up

# Widest blocks, of the input and of the hidden layer: the gradients of wider ones do not fit into registers.
WIDEST, WIDEST_HIDDEN = 32, 128
# A product's operands have at least so many rows and columns, a warp group's so many rows.
LEAST, CHUNK = 16, 64
# Tokens of a tile, forward and backward.
FORWARD_ROWS, BACKWARD_ROWS = 64, 32
# Registers of a thread backward where warp groups take products (Hopper): three programs on a multiprocessor.
REGISTERS, WARP_GROUPS = 168, (9, 0)
# Programs wanted in a launch, of the backward pass each with sums of its own, and tiles that are worth those.
FORWARD_PROGRAMS, BACKWARD_PROGRAMS, TILES = 1056, 396, 4
# The first generation whose tensor cores these products take.
TENSOR_CORES = (8, 0)


def serves(x: Tensor, up: Tensor, down: Tensor) -> bool:
    """Return whether an MLP of tokens x (T, D) is served; its blocks are as ``whole_mlp`` has them."""
    blocks, hidden, width = up.shape
    fits = x.shape[1] == blocks * width and down.shape == (blocks, width, hidden)
    small = width <= WIDEST and hidden <= WIDEST_HIDDEN and x.dtype in (torch.bfloat16, torch.float16)
    if not fits or not small or torch.version.hip is not None:
        return False
    # A compiler does not trace the question; on older GPUs a compiled MLP is right, and slow.
    if not x.is_cuda or torch.compiler.is_compiling():
        return True
    return torch.cuda.get_device_capability(x.device) >= TENSOR_CORES


def whole_mlp(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, bias: Tensor) -> Tensor:
    """Return gelu(x U^T + b) W^T + c.

    Args:
        x: (T, D), of bfloat16 or float16.
        up: (blocks, H / blocks, D / blocks), the blocks of U, of the same type.
        up_bias: b (H,).
        down: (blocks, D / blocks, H / blocks), those of W.
        bias: c (D,).

    Returns:
        (T, D).
    """
    return _whole(*(t.contiguous() for t in (x, up, up_bias, down, bias)))


@operator("whole_mlp")
def _whole(x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, bias: Tensor) -> Tensor:
    y, (blocks, hidden, width) = torch.empty_like(x), up.shape
    steps, parts = _steps(x.shape[0], blocks, FORWARD_ROWS, FORWARD_PROGRAMS, 1)
    with on_device_of(x):
        whole_mlp_kernel[(parts, blocks)](
            x, up, up_bias, down, bias, y, x.shape[0], width, hidden, steps,
            ROWS=FORWARD_ROWS, **_sizes(hidden, width),
        )  # fmt: skip
    return y


@_whole.register_fake
def _(x, up, up_bias, down, bias):  # type: ignore[no-untyped-def]
    return torch.empty_like(x)


@operator("whole_mlp_backward")
def _whole_backward(
    dy: Tensor, x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, of U and W together, (2, blocks * H * D), and of b and c, (H + D,)."""
    dx, (blocks, hidden, width) = torch.empty_like(x), up.shape
    steps, parts = _steps(x.shape[0], blocks, BACKWARD_ROWS, BACKWARD_PROGRAMS, TILES)
    capped = x.is_cuda and torch.cuda.get_device_capability(x.device) == WARP_GROUPS
    matrices = x.new_empty((parts, 2, up.numel()), dtype=torch.float32)
    sums = x.new_empty((parts, blocks * (hidden + width)), dtype=torch.float32)
    with on_device_of(x):
        # One stage: with more, the compiler copies the next tile of dy over the one that products not waited for read.
        whole_mlp_grad_kernel[(parts, blocks)](
            dy.contiguous(), x, up, up_bias, down, dx, matrices, sums, x.shape[0], width, hidden, steps,
            ROWS=BACKWARD_ROWS, **_sizes(hidden, width), num_stages=1, **({"maxnreg": REGISTERS} if capped else {}),
        )  # fmt: skip
        dmatrices, dbiases = up.new_empty(matrices.shape[1:]), up_bias.new_empty(sums.shape[1:])
        return dx, added_up(matrices, dmatrices), added_up(sums, dbiases)


@_whole_backward.register_fake
def _(dy, x, up, up_bias, down, bias):  # type: ignore[no-untyped-def]
    return torch.empty_like(x), up.new_empty(2, up.numel()), up_bias.new_empty(up_bias.shape[0] + bias.shape[0])


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _back(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
    saved = ctx.saved_tensors  # once: under checkpointing asking again is an error
    _, up, up_bias, down, _ = saved
    dx, matrices, sums = _whole_backward(dy, *saved)
    dup, ddown = matrices.unbind()
    dup_bias, dbias = sums.tensor_split([up_bias.shape[0]])
    return dx, dup.view(up.shape), dup_bias, ddown.view(down.shape), dbias


_whole.register_autograd(_back, setup_context=_keep)


def _sizes(hidden: int, width: int) -> dict[str, int]:
    """Return sizes of a block as the kernels have them, powers of two, and how much of its hidden layer at a time."""
    hidden = max(LEAST, power_of_two(hidden))
    return {"WIDTH": max(LEAST, power_of_two(width)), "HIDDEN": hidden, "CHUNK": min(CHUNK, hidden)}


def _steps(size: int, blocks: int, rows: int, programs: int, least: int) -> tuple[int, int]:
    """Return how many tiles of tokens a program goes through, at least, and into how many parts they fall."""
    tiles = max(1, cdiv(size, rows))
    # no more than are wanted: a few beyond what fits on the device would take as long again
    steps = cdiv(tiles, max(1, min(cdiv(tiles, least), programs // blocks)))
    return steps, cdiv(tiles, steps)
