"""Kernels compile for a GPU without one, and what the compiler writes is right."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from kernel_checks import DEVICE, build, without_interpreter

from orchid.nn.mixer2d import OrchidMixer2d
from orchid.nn.mlp import MLP
from orchid.nn.norm import LayerNorm

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels import passes, totals
from orchid.ops.kernels.four_step import path as four_step
from orchid.ops.kernels.images import around_fft as images
from orchid.ops.kernels.images.dense import path as dense_images
from orchid.ops.kernels.long import path as long
from orchid.ops.kernels.mlp import whole
from orchid.ops.kernels.norm import operator as norm
from orchid.ops.kernels.operands import Operands
from orchid.ops.kernels.static import network


@pytest.mark.parametrize(
    ("case", "generation", "kernels"),
    [
        (
            "one-row",
            90,
            {"four_step_kernel", "four_step_grad_kernel", "four_step_conv_grad_kernel", "octet_grad_kernel"}
            | {"sine_layer_kernel", "sine_layer_grad_kernel", "sine_totals_kernel", "layer_totals_kernel"},
        ),
        ("rows-in-pairs", 80, {"four_step_kernel", "four_step_grad_kernel"}),
        ("masked", 90, {"four_step_kernel", "four_step_grad_kernel"}),
        ("warp-groups", 80, {"four_step_kernel", "four_step_grad_kernel"}),
        ("warp-groups-cross", 90, {"four_step_kernel", "four_step_grad_kernel"}),
        ("long-rows", 90, {"long_signals_kernel", "long_mix_grad_kernel", "long_gate_kernel", "octet_grad_kernel"}),
        ("long-rows", 80, {"long_mix_kernel", "long_conditioning_grad_kernel", "long_times_kernel"}),
        ("short-rows", 90, {"dense_kernel", "dense_grad_kernel", "dense_static_grad_kernel", "added_up_kernel"}),
        ("around-the-fft", 90, {"mix_kernel", "mix_grad_kernel", "streams_grad_kernel", "add_rows_kernel"}),
        ("dct", 90, {"signals_kernel", "mix_kernel", "mix_grad_kernel", "static_kernel", "static_grad_kernel"}),
        ("cross", 90, {"signals_kernel", "mix_kernel", "mix_grad_kernel"}),
        (
            "norm-and-small-mlp",
            90,
            {"norm_kernel", "norm_grad_kernel", "whole_mlp_kernel", "whole_mlp_grad_kernel", "added_up_kernel"},
        ),
        (
            "small-images",
            90,
            {"dense_image_matrices_kernel", "dense_image_kernel", "dense_image_grad_kernel"}
            | {"dense_image_conditioning_grad_kernel", "dense_image_streams_grad_kernel", "dense_image_totals_kernel"},
        ),
        ("small-images", 80, {"dense_image_kernel", "dense_image_grad_kernel"}),
        ("norm-and-small-mlp", 80, {"norm_kernel", "norm_grad_kernel", "whole_mlp_kernel", "whole_mlp_grad_kernel"}),
    ],
)
def test_every_launch_of_a_layer_compiles(case: str, generation: int, kernels: set[str], tmp_path: Path) -> None:
    printed = without_interpreter("compile_launches.py", tmp_path, case, str(generation))
    assert kernels <= set(printed.split())


class Recorded:
    """A kernel whose launches are kept in a file, the last one."""

    def __init__(self, kernel: Any, file: Path) -> None:
        self.kernel, self.file = kernel, file

    def __getitem__(self, grid: tuple[int, int]) -> Any:
        def launch(*args: Any, **named: Any) -> None:
            self.kernel[grid](*args, **named)
            torch.save({"grid": grid, "args": args, "named": named}, self.file)

        return launch


@pytest.mark.skipif(DEVICE != "cpu", reason="for machines without a GPU")
@pytest.mark.parametrize(
    ("name", "outputs", "n", "masked"),
    [
        ("four_step_kernel", ["y"], 256, True),
        ("four_step_kernel", ["y"], 512, True),
        ("four_step_kernel", ["y"], 1024, False),
        ("four_step_grad_kernel", ["grads", "dstatic", "edges", "partial"], 256, True),
        ("four_step_conv_kernel", ["y"], 512, False),
        ("four_step_conv_grad_kernel", ["du", "dstatic", "edges"], 512, False),
    ],
)
def test_compiled_kernels_do_what_the_interpreter_does(
    name: str, outputs: list[str], n: int, masked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "launch.pt"
    monkeypatch.setattr(four_step, name, Recorded(getattr(four_step, name), file))
    mixer, x = build(2, n, residual_conv="conv" in name).bfloat16(), torch.randn(3, n - 8, 2).bfloat16()
    y = mixer(x.requires_grad_(), torch.rand(x.shape[:2]) > 0.3 if masked else None)
    y.backward(torch.randn_like(y))
    for error, written in compared(four_step, name, outputs, file, tmp_path):
        assert error < 1e-3 and written == 1  # a bfloat16 rounded the other way, here and there


@pytest.mark.skipif(DEVICE != "cpu", reason="for machines without a GPU")
def test_warps_across_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tile of transformed columns has more columns than rows, warps stand side by side: n = 131,072."""
    assert [n for n, shape in long.SHAPES.items() if shape.across > 1] == [2**17]
    given: list[Operands] = []

    def found(operands: Operands, *_: object) -> None:
        given.append(operands)
        raise Found

    monkeypatch.setattr(passes, "path_of", found)
    mixer, x = build(2, 2**17, filter_width=4).bfloat16().freeze(), torch.randn(1, 2**17, 2).bfloat16()
    with pytest.raises(Found):
        mixer(x)
    file = tmp_path / "launch.pt"
    monkeypatch.setattr(long, "long_signals_kernel", Recorded(long.long_signals_kernel, file))
    long._signals(given[0], 0, 1, None)
    for error, written in compared(long, "long_signals_kernel", ["fields", "scales"], file, tmp_path):
        assert error < 1e-3 and written == 1  # a float16 rounded the other way, here and there


class Found(Exception):
    """The operands of a layer are known; nothing is to be computed."""


@pytest.mark.skipif(DEVICE != "cpu", reason="for machines without a GPU")
@pytest.mark.parametrize(
    ("module", "name", "outputs"),
    [
        (network, "sine_layer_kernel", ["x", "z"]),
        (network, "sine_layer_grad_kernel", ["shares"]),
        (network, "sine_totals_kernel", ["dfrequency", "dw1", "db2", "dw3"]),
        (images, "image_mix_grad_kernel", ["out", "dstatic", "partial"]),
        (images, "image_streams_grad_kernel", ["dp", "partial"]),
        (totals, "layer_totals_kernel", ["doffset", "dweight", "dbias", "dspatial", "dspectral"]),
        (norm, "norm_kernel", ["y", "moments"]),
        (norm, "norm_grad_kernel", ["dx", "sums"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_compiled_kernels_without_half_precision(
    module: ModuleType, name: str, outputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four warps, three TF32 terms where there are products. One launch of two writes the ``shares`` of two layers."""
    file = tmp_path / "launch.pt"
    monkeypatch.setattr(module, name, Recorded(getattr(module, name), file))
    if module is totals:
        build(2, 30)(torch.randn(2, 30, 2)).sum().backward()
    elif module is norm:
        LayerNorm(100)._by_kernels(torch.randn(70, 100, requires_grad=True)).exp().sum().backward()
    else:
        OrchidMixer2d(2, 4, 6, conditioning="cross", filter_width=20, backend="triton")(
            torch.randn(3, 4, 6, 2)
        ).square().sum().backward()
    for error, written in compared(module, name, outputs, file, tmp_path):
        assert error < 1e-6 and (written == 1 or outputs == ["shares"])


@pytest.mark.skipif(DEVICE != "cpu", reason="for machines without a GPU")
@pytest.mark.parametrize(
    ("name", "outputs"), [("whole_mlp_kernel", ["y"]), ("whole_mlp_grad_kernel", ["dx", "matrices", "sums"])]
)
def test_compiled_kernels_of_small_mlps(
    name: str, outputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "launch.pt"
    monkeypatch.setattr(whole, name, Recorded(getattr(whole, name), file))
    mlp, x = MLP(40, blocks=2, expansion=4).half(), torch.randn(70, 40).half().requires_grad_()
    mlp._by_blocks(x).backward(torch.randn(70, 40).half())
    launch = torch.load(file, weights_only=True)
    launch["named"]["num_stages"] = 1  # ``ptx.py`` does not know asynchronous copies
    torch.save(launch, file)
    for error, written in compared(whole, name, outputs, file, tmp_path):
        assert error < 1e-3 and written == 1  # a float16 rounded the other way, here and there


@pytest.mark.skipif(DEVICE != "cpu", reason="for machines without a GPU")
@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        ("dense_image_matrices_kernel", ["convs", "constants", "bands", "totals"]),
        ("dense_image_kernel", ["y"]),
        ("dense_image_grad_kernel", ["grads", "spectra", "factors", "dstatic"]),
        ("dense_image_conditioning_grad_kernel", ["grads", "dbands"]),
        ("dense_image_streams_grad_kernel", ["dp", "products", "sums"]),
        ("dense_image_totals_kernel", ["doffset", "dweight", "dbias", "dspatial", "dspectral"]),
    ],
)
def test_compiled_kernels_of_small_images(
    name: str, outputs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some write a part of their outputs, other launches the rest."""
    file = tmp_path / "launch.pt"
    monkeypatch.setattr(dense_images, name, Recorded(getattr(dense_images, name), file))
    mixer = OrchidMixer2d(1, 3, 5, filter_width=16, backend="triton").bfloat16()
    mixer(torch.randn(26, 3, 5, 1).bfloat16()).square().sum().backward()
    for error, written in compared(dense_images, name, outputs, file, tmp_path):
        assert error < 1e-3 and written > 0.2  # a bfloat16 rounded the other way, here and there


def compared(module: ModuleType, name: str, outputs: list[str], file: Path, folder: Path) -> list[list[float]]:
    """Return how far a compiled kernel's outputs are from the interpreter's, and how much of them it has written."""
    printed = without_interpreter("run_compiled.py", folder, module.__name__, name, str(file), *outputs)
    errors = {line.split()[0]: [float(number) for number in line.split()[1:]] for line in printed.splitlines()}
    assert errors.keys() == set(outputs)
    return list(errors.values())
