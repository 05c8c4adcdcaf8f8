"""Operators of the library: known to autograd, torch.compile and export, and cheap to call where none of them watches.

A call by way of the dispatcher takes some tenths of a millisecond of Python, as long as a short layer's kernels. In
eager mode it is a ``torch.autograd.Function`` instead, or with nothing to differentiate the function itself.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch

PLAIN = (Tensor, nn.Parameter)


def _nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep nothing for the backward pass."""


class Operator:
    """A function of tensors as ``orchid::name``.

    Args:
        name: its name in the library.
        run: the function; its annotations are the operator's schema. It changes none of its arguments.

    Attributes:
        op: the operator, as the dispatcher has it.
    """

    def __init__(self, name: str, run: Callable[..., Any]) -> None:
        self.op = torch.library.custom_op(f"orchid::{name}", mutates_args=())(run)
        self._name, self._run = name, run
        self._function: type[torch.autograd.Function] | None = None

    def register_fake(self, fake: Callable[..., Any]) -> Callable[..., Any]:
        """Let ``fake`` say of which shapes the results are."""
        return self.op.register_fake(fake)

    def register_autograd(self, backward: Callable[..., Any], setup_context: Callable[..., None] = _nothing) -> None:
        """Let ``backward(ctx, *grads)`` return the gradients, of what ``setup_context(ctx, inputs, output)`` keeps."""
        self.op.register_autograd(backward, setup_context=setup_context)
        run = self._run

        def forward(ctx: Any, *given: Any) -> Any:
            output = run(*given)
            setup_context(ctx, given, output)
            return output

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self._function = type(f"orchid_{self._name}", (torch.autograd.Function,), members)  # as profiles show it

    def __call__(self, *given: Any) -> Any:
        """Return the function of its arguments."""
        if torch.compiler.is_compiling() or _watched(given):
            return self.op(*given)
        if not (torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in given)):
            return self._run(*given)
        # One without a rule goes where its derivative is an error.
        return self.op(*given) if self._function is None else self._function.apply(*given)


def operator(name: str) -> Callable[[Callable[..., Any]], Operator]:
    """Make an ``Operator`` of the function that follows."""
    return lambda run: Operator(name, run)


def _watched(given: tuple[Any, ...]) -> bool:
    """Return whether somebody records or replaces operators, or a tensor is not what it holds: kernels read memory."""
    stacks = (
        torch._C._len_torch_dispatch_stack(),
        torch._C._len_torch_function_stack(),
        torch._ops._len_torch_dispatch_stack_pre_dispatch(),
    )
    if any(stacks) or torch._C._get_tracing_state() is not None:
        return True
    return any(isinstance(t, Tensor) and (type(t) not in PLAIN or _wrapped(t)) for t in given)


def _wrapped(t: Tensor) -> bool:
    """Return whether a tensor stands for others: batched by autograd or ``torch.func``, or to be negated."""
    return functorch.is_legacy_batchedtensor(t) or functorch.is_functorch_wrapped_tensor(t) or t.is_neg()
