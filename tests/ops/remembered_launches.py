"""Run a layer on a driver that launches nothing, and compare remembered launches with Triton's own.

A script of its own: kernels are made for the interpreter or for the compiler when they are imported.
"""

import os
from typing import Any, ClassVar

os.environ.pop("TRITON_INTERPRET", None)

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from orchid import OrchidMixer
from orchid.nn.mixer2d import OrchidMixer2d
from orchid.ops.kernels.images.operator import fused_image_mix
from orchid.ops.kernels.launch import Kernel


class Utils:
    """Loads nothing."""

    def load_binary(self, *_: object) -> tuple[int, int, int, int, int]:
        return 1, 1, 128, 0, 1024

    def get_device_properties(self, _: int) -> dict[str, int]:
        return {"max_shared_mem": 227 << 10}


class Launcher:
    """Keeps what it was to launch: programs, stream, function, its metadata and its arguments."""

    launches: ClassVar[list[list[object]]] = []

    def __init__(self, *_: object) -> None: ...

    def __call__(self, *given: Any) -> None:
        *first, _, _, _ = given[:9]  # metadata and hooks of the launch
        arguments = [value.data_ptr() if isinstance(value, torch.Tensor) else value for value in given[9:]]
        self.launches.append([*first, *arguments])


class Driver:
    """A Hopper GPU of which nothing is there."""

    utils, launcher_cls = Utils(), Launcher

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0


def compared(kernel: Kernel, grid: tuple[int, ...]) -> Any:
    """Return a launch that happens three times: by Triton, by the kernel at first sight, and remembered."""

    def launch(*given: object, **constants: object) -> None:
        Launcher.launches.clear()
        kernel.function[grid](*given, **constants)
        for _ in range(2):
            remembering(kernel, grid)(*given, **constants)
        theirs, _, ours = Launcher.launches
        assert ours == theirs, f"{kernel.function.__name__}: {ours} is not {theirs}"
        names.add(kernel.function.__name__)

    return launch


if __name__ == "__main__":
    names: set[str] = set()
    driver.set_active(Driver())
    remembering = Kernel.__getitem__
    Kernel.__getitem__ = compared  # type: ignore[method-assign]
    for length, batch in ((512, 3), (48, 1)):
        mixer = OrchidMixer(16, length, backend="triton").bfloat16()
        mixer._interpreted = True  # takes the kernels on a CPU
        x = torch.randn(batch, length, 16).bfloat16().requires_grad_()
        y = mixer(x)
        torch.autograd.grad(y, [x, *mixer.parameters()], torch.ones_like(y))
    images, p = OrchidMixer2d(4, 4, 3).bfloat16(), torch.randn(24, 12, 12).bfloat16().requires_grad_()
    given = (images.in_proj.bias, images.short_weight, images.short_bias, images.spatial, images.spectral)
    y = fused_image_mix(p, *given, images.static_spectrum(), (4, 3))
    torch.autograd.grad(y, p, torch.ones_like(y))
    print(" ".join(sorted(names)))
