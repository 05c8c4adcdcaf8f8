"""Where kernels are launched, and whether they can be."""

import importlib.util
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

# Whether kernels can be compiled at all.
TRITON = importlib.util.find_spec("triton") is not None
# What is asked of layers for which kernels are optional: nothing of theirs is only to be had by name.
OPTIONAL = ("auto", "torch")
# Launches that a kernel remembers: more sizes than this are not met again and again.
REMEMBERED = 256


class Kernel:
    """A kernel that remembers its launches.

    Triton binds, examines and looks up all arguments of every launch, in Python, and asks the driver about every
    address. What comes of it depends on little: the types of tensors, whether 16 divides their addresses, and whole
    numbers and constants. Where these have been seen before, the compiled kernel is launched straight away. Hooks
    before a launch and another ``TRITON_DEBUG`` are met at the first of such launches only.

    Args:
        function: the kernel, as Triton has it; tensors and numbers are given by position, constants by name.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self._seen: dict[tuple[object, ...], tuple[Any, tuple[object, ...]]] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """Return a launch of this many programs along each axis."""

        def launch(*given: object, **constants: object) -> None:
            seen: list[object] = [*constants, *constants.values()]
            arguments: list[object] = []
            for value in given:
                if isinstance(value, Tensor):
                    address = value.data_ptr()
                    arguments.append(address)
                    seen += (value.dtype, value.get_device(), address & 15)
                else:
                    arguments.append(value)
                    seen.append(float if type(value) is float else value)
            key = tuple(seen)
            found = self._seen.get(key)
            if found is None:
                self._remember(key, self.function[grid](*given, **constants), len(given), constants)
            else:
                compiled, rest = found
                compiled[(*grid, 1, 1)[:3]](*arguments, *rest)

        return launch

    def _remember(self, key: tuple[object, ...], compiled: Any, given: int, constants: dict[str, object]) -> None:
        if len(self._seen) == REMEMBERED:
            self._seen.clear()
        if compiled is not None:
            self._seen[key] = compiled, tuple(constants[name] for name in self.function.arg_names[given:])


def launched(function: Any) -> Any:
    """Let a kernel remember its launches; not in the interpreter, nor for HIP, where sizes decide about it too."""
    return function if interpreter_on() or torch.version.hip else Kernel(function)


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
