"""Where kernels are launched, and whether they can be."""

import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

# Whether kernels can be compiled at all.
TRITON = importlib.util.find_spec("triton") is not None


def cdiv(size: int, part: int) -> int:
    """Return how many parts hold a size. Triton's own, made for kernels too, takes microseconds."""
    return -(-size // part)


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is not smaller."""
    return 1 << (size - 1).bit_length()


def on_device_of(x: Tensor) -> AbstractContextManager[object]:
    """Return a context in which kernels are launched where x is: Triton takes the current device."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


@lru_cache(maxsize=16)
def shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory a program may have; the interpreter has no limit."""
    if device.type != "cuda":
        return 1 << 30
    from triton.runtime import driver

    index = torch.cuda.current_device() if device.index is None else device.index
    return int(driver.active.utils.get_device_properties(index)["max_shared_mem"])


def interpreter_on() -> bool:
    """Return whether Triton runs kernels in its interpreter, on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def transformed() -> bool:
    """Return whether ``torch.func`` or forward-mode derivatives are under way: the kernels have no rule for them."""
    return torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def hooked(module: nn.Module) -> bool:
    """Return whether something watches or replaces the passes of a module, or of one inside, which kernels pass by."""
    hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    if hooks or "forward" in module.__dict__:
        return True
    return any(hooked(child) for child in module._modules.values() if child is not None)
