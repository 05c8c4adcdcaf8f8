"""Kernels remember their launches, and launch the same as Triton would."""

from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_checks import without_interpreter

from orchid.ops.kernels import launch
from orchid.ops.kernels.launch import Kernel


class Function:
    """What Triton makes of a kernel: a call compiles, and returns what launches the same again."""

    arg_names = ("x", "y", "size", "scale", "BLOCK", "WIDE")

    def __init__(self) -> None:
        self.compiled = 0
        self.again: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def first(*given: object, **constants: object) -> "Function":
            self.compiled += 1
            return Remembered(self)

        return first


class Remembered(Function):
    def __init__(self, function: Function) -> None:
        self.function = function

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *given: self.function.again.append((grid, *given))


def test_what_decides_is_seen() -> None:
    function = Function()
    kernel, x = Kernel(function), torch.zeros(64)
    y = torch.zeros(64)
    kernel[(3,)](x, y, 5, 0.5, BLOCK=8, WIDE=True, num_warps=2)
    kernel[(4, 2)](y, x, 5, 0.25, BLOCK=8, WIDE=True, num_warps=2)  # other addresses, programs, broken numbers
    assert function.compiled == 1
    assert function.again == [((4, 2, 1), y.data_ptr(), x.data_ptr(), 5, 0.25, 8, True)]
    for given, constants in (
        ((x[1:], y, 5, 0.5), {"BLOCK": 8, "WIDE": True, "num_warps": 2}),  # an address that 16 does not divide
        ((x.double(), y, 5, 0.5), {"BLOCK": 8, "WIDE": True, "num_warps": 2}),
        ((x, y, 6, 0.5), {"BLOCK": 8, "WIDE": True, "num_warps": 2}),
        ((x, y, 5, 0.5), {"BLOCK": 16, "WIDE": True, "num_warps": 2}),
        ((x, y, 5, 0.5), {"BLOCK": 8, "WIDE": True, "num_warps": 4}),
        ((x, y, 5, 0.5), {"BLOCK": 8, "WIDE": True, "num_stages": 2}),
    ):
        before = function.compiled
        kernel[(3,)](*given, **constants)
        assert function.compiled == before + 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "REMEMBERED", 4)
    kernel, x = Kernel(Function()), torch.zeros(64)
    for size in range(50):
        kernel[(1,)](x, x, size, 0.5, BLOCK=8, WIDE=False)
        assert len(kernel._seen) <= 4


def test_launches_are_those_of_triton(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="needs Triton")
    printed = without_interpreter("remembered_launches.py", tmp_path)
    assert {"four_step_grad_kernel", "mix_grad_kernel", "sine_totals_kernel", "added_up_kernel"} <= set(printed.split())
