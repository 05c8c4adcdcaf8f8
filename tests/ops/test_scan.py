import pytest
import torch
from helpers import assert_close

from orchid.ops.scan import linear_scan


def recurrence(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    h, states = torch.zeros_like(b[:, 0]), []
    for t in range(b.shape[1]):
        h = a[:, t] * h + b[:, t]
        states.append(h)
    return torch.stack(states, dim=1)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 63, 64, 129])
def test_is_the_recurrence(length: int) -> None:
    a = torch.rand(2, length, 3, dtype=torch.float64).mul(1.2).requires_grad_()
    b = torch.randn(2, length, 3, dtype=torch.float64, requires_grad=True)
    h, expected = linear_scan(a, b), recurrence(a, b)
    assert_close("h", h, expected)
    weight = torch.randn_like(h)
    actual = torch.autograd.grad((h * weight).sum(), (a, b))
    for name, ours, theirs in zip("ab", actual, torch.autograd.grad((expected * weight).sum(), (a, b)), strict=True):
        assert_close(f"gradient of {name}", ours, theirs)


def test_a_state_that_forgets_everything() -> None:
    """Zero decays, where a scan in logarithms would fail."""
    b = torch.randn(1, 20, 2)
    assert torch.equal(linear_scan(torch.zeros_like(b), b), b)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)], ids=str)
def test_every_sample_by_itself(axes: tuple[int | None, int | None]) -> None:
    a, b = (torch.rand(*([4] if axis == 0 else []), 2, 7, 3) for axis in axes)
    together = torch.func.vmap(linear_scan, axes)(a, b)
    alone = [linear_scan(a[i] if axes[0] == 0 else a, b[i] if axes[1] == 0 else b) for i in range(4)]
    assert_close("h", together, torch.stack(alone))
