"""Autograd functions where derivatives run forward: they have no rule for it, and what they compute has one."""

from typing import Any

import torch
from torch.autograd import forward_ad


def forward_mode() -> bool:
    """Return whether forward-mode derivatives are under way."""
    return forward_ad._current_level >= 0


def applied(function: type[torch.autograd.Function], *given: Any) -> Any:
    """Return an autograd function of its arguments, derived forward or traced to TorchScript step by step.

    A ``jvp`` of its own would keep the compiler from tracing it; TorchScript has no rule for autograd functions.
    """
    if not torch.compiler.is_compiling() and (forward_mode() or torch._C._is_tracing()):
        return function.forward(*given)
    return function.apply(*given)
