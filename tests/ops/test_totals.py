"""Sums over the programs of other kernels, on a GPU or in Triton's interpreter."""

import pytest
import torch
from kernel_checks import DEVICE

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels import totals


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("parts", "size"), [(1, 5), (3, 130), (17, 64), (70, 200)])
def test_few_parts(parts: int, size: int, dtype: torch.dtype) -> None:
    x = torch.randn(parts, size, device=DEVICE, dtype=dtype)
    total = totals.added_up(x, torch.empty(size, device=DEVICE))
    torch.testing.assert_close(total, x.double().sum(dim=0).float(), rtol=1e-5, atol=1e-5)


def test_no_parts() -> None:
    assert torch.equal(totals.added_up(torch.empty(0, 3, device=DEVICE), torch.ones(3)), torch.zeros(3))


def test_many_parts_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """In three stages here; the last share has fewer parts than the others, the last column fewer than a block."""
    for name, value in {"NUMBERS": 64, "BLOCK": 16, "LEAST": 1}.items():
        monkeypatch.setattr(totals, name, value)
    x = torch.randint(-9, 9, (61, 2, 9), device=DEVICE).float()
    stages, launch = [], totals.added_up_kernel

    class Counted:
        def __getitem__(self, grid: tuple[int, int]) -> object:
            stages.append(grid)
            return launch[grid]

    monkeypatch.setattr(totals, "added_up_kernel", Counted())
    out = torch.full((2, 9), float("nan"), device=DEVICE)
    assert torch.equal(totals.added_up(x, out), x.sum(dim=0))
    assert stages == [(2, 16), (2, 4), (2, 1)]
