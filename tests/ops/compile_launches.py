"""Run layers without a GPU and compile every kernel that they launch, for one generation of GPUs, as its launch would.

The interpreter, which the other tests use, forgives what the compiler does not: that sizes of 1 are constants, for one.
A script of its own: kernels are made for the interpreter or for the compiler when they are imported.
"""

import os
import sys
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language import target_info
from triton.runtime.jit import JITFunction

from orchid import OrchidMixer
from orchid.nn.mixer2d import OrchidMixer2d
from orchid.nn.mlp import MLP
from orchid.nn.norm import LayerNorm
from orchid.ops.kernels.four_step import path as four_step
from orchid.ops.kernels.images.dense import path as dense_images
from orchid.ops.kernels.images.operator import fused_image_mix
from orchid.ops.kernels.long import path as long

TYPES = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.uint8: "*u8",
    torch.int16: "*i16",
}
CASES: dict[str, tuple[dict[str, Any], int, torch.dtype]] = {
    "one-row": ({"max_length": 512, "residual_conv": True}, 1, torch.bfloat16),
    "rows-in-pairs": ({"max_length": 256, "conditioning": "static"}, 3, torch.bfloat16),
    "masked": ({"max_length": 512}, 3, torch.bfloat16),
    "warp-groups": ({"max_length": 4096}, 2, torch.bfloat16),
    "warp-groups-cross": ({"max_length": 4096, "conditioning": "cross"}, 2, torch.bfloat16),
    "long-rows": ({"max_length": 131072}, 1, torch.bfloat16),
    "short-rows": ({"max_length": 64}, 26, torch.bfloat16),
    "around-the-fft": ({"max_length": 96, "residual_conv": True}, 1, torch.float32),
    "dct": ({"max_length": 48, "transform": "dct"}, 2, torch.bfloat16),
    "cross": ({"max_length": 33, "conditioning": "cross"}, 1, torch.bfloat16),
}
compiled: set[str] = set()


def specialised(kernel: Any, given: dict[str, Any]) -> ASTSource:
    """Return a kernel with the types and constants that a launch gives it."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int], Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for i, parameter in enumerate(kernel.params):
        name, value = parameter.name, given[parameter.name]
        if parameter.is_constexpr or (type(value) is int and value == 1 and not parameter.do_not_specialize):
            signature[name], constants[(i,)] = "constexpr", value
            continue
        if isinstance(value, torch.Tensor):
            signature[name], whole = TYPES[value.dtype], value.data_ptr() % 16 == 0
        elif isinstance(value, float):
            signature[name], whole = "fp32", False
        else:
            signature[name], whole = "i32", value % 16 == 0 and not parameter.do_not_specialize
        if whole:
            attributes[(i,)] = [["tt.divisibility", 16]]
    return ASTSource(kernel, signature, constexprs=constants, attrs=attributes)


def compiled_launch(
    kernel: Any, args: Any, named: dict[str, Any], generation: int = 90
) -> tuple[Any, ASTSource, dict[str, Any]]:
    """Return a kernel compiled as a launch would have it, what it was compiled from, and its arguments by name."""
    given = dict(zip(kernel.arg_names, args, strict=False)) | {k: v for k, v in named.items() if k in kernel.arg_names}
    options = {k: v for k, v in named.items() if k not in kernel.arg_names}
    source = specialised(kernel, given)
    return triton.compile(source, target=GPUTarget("cuda", generation, 32), options=options), source, given


def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
    """Compile instead of running; what a program needs is what is said where it is asked for."""
    binary, _, given = compiled_launch(kernel, args, named, int(sys.argv[2]))
    said = 99 << 10  # what the smallest GPUs have
    if kernel.fn.__module__.startswith("orchid.ops.kernels.four_step."):
        said = four_step.SHAPES[given["N1"] * given["N2"]].shared
    if kernel.fn.__module__.startswith("orchid.ops.kernels.long."):
        said = long.SHAPES[given["R"] * (given["Q"] if "Q" in given else given["N1"] * given["N2"])].shared
    if kernel.fn.__module__.startswith("orchid.ops.kernels.images.dense."):
        said = dense_images.SHARED
    assert binary.metadata.shared <= said, f"{kernel.fn.__name__}: {binary.metadata.shared} > {said}"
    # ptxas (12.8 to 13.0) drops constants that are added to half a pair: triton-lang/triton#11581
    assert "add.s16x2" not in binary.asm["ptx"], f"{kernel.fn.__name__} counts in pairs of 16 bits"
    compiled.add(kernel.fn.__name__)


def current_target() -> GPUTarget:
    """Return what kernels ask for: the generation that they are compiled for."""
    return GPUTarget("cuda", int(sys.argv[2]), 32)


current_target.__triton_builtin__ = True  # type: ignore[attr-defined]


if __name__ == "__main__":
    target_info.current_target = current_target
    JITFunction.run = compile_only
    if sys.argv[1] == "norm-and-small-mlp":  # of Orchid-ViT
        for width in (128, 36):  # the second has blocks that are padded
            norm, mlp = LayerNorm(width).bfloat16(), MLP(width, blocks=4).bfloat16()
            mlp._by_blocks(norm._by_kernels(torch.randn(512, width).bfloat16())).sum().backward()
        print(" ".join(sorted(compiled)))
        sys.exit()
    if sys.argv[1] == "small-images":  # in bfloat16, under autocast, and where counting could be in 16 bits
        sizes = [(8, 8, torch.bfloat16), (8, 8, torch.float32)]
        if sys.argv[2] == "90":  # which has such pairs
            sizes += [(height, width, torch.bfloat16) for height, width in ((4, 3), (7, 7))]
        for height, width, dtype in sizes:
            mixer = OrchidMixer2d(16, height, width).to(dtype)
            p = torch.randn(70, 48, height * width).bfloat16().requires_grad_()
            parameters = (mixer.in_proj.bias, mixer.short_weight, mixer.short_bias, mixer.spatial, mixer.spectral)
            fused_image_mix(p, *parameters, mixer.static_spectrum(), (height, width)).sum().backward()
        print(" ".join(sorted(compiled)))
        sys.exit()
    settings, batch, dtype = CASES[sys.argv[1]]
    mixer = OrchidMixer(16, backend="triton", **settings).to(dtype)
    mixer._interpreted = True  # takes the kernels on a CPU
    x = torch.randn(batch, mixer.max_length, 16).to(dtype).requires_grad_()
    y = mixer(x, torch.rand(x.shape[:2]) > 0.3 if sys.argv[1] == "masked" else None)
    torch.autograd.grad(y, [x, *mixer.parameters()], torch.ones_like(y))
    print(" ".join(sorted(compiled)))
