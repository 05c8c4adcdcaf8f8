"""What surrounds a layer that kernels would pass by."""

import sys

import torch
from torch import nn

from orchid.ops.forward_mode import forward_mode


def transformed() -> bool:
    """Return whether ``torch.func`` or forward-mode derivatives are under way: the kernels have no rule for them."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_mode()


def distributed(x: torch.Tensor) -> bool:
    """Return whether a tensor is a part of one that several processes hold: the kernels have no rule for DTensors."""
    library = sys.modules.get("torch.distributed.tensor")  # nobody has one who has not imported it
    return library is not None and isinstance(x, library.DTensor)


def hooked(module: nn.Module) -> bool:
    """Return whether something watches or replaces the passes of a module, or of one inside, which kernels pass by."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    if hooks or "forward" in module.__dict__:
        return True
    return any(hooked(child) for child in module._modules.values() if child is not None)
