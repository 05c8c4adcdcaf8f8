import pytest
import torch
from helpers import assert_close

from orchid.ops.long_conv import long_conv


def toeplitz(forward: torch.Tensor, backward: torch.Tensor | None, length: int) -> torch.Tensor:
    """The (..., L, L) matrix of the definition, entry by entry."""
    matrix = torch.zeros(*forward.shape[:-1], length, length, dtype=forward.dtype)
    for t in range(length):
        for s in range(length):
            if s <= t:
                matrix[..., t, s] = forward[..., t - s]
            elif backward is not None:
                matrix[..., t, s] = backward[..., s - t - 1]
    return matrix


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("length", [1, 2, 7, 16])
def test_is_the_toeplitz_product(sides: int, length: int) -> None:
    """Output and gradients, also for kernels longer than the input."""
    x = torch.randn(3, 4, length, dtype=torch.float64, requires_grad=True)
    kernels = [torch.randn(4, 16, dtype=torch.float64, requires_grad=True) for _ in range(sides)]
    matrix = toeplitz(kernels[0], kernels[1] if sides == 2 else None, length)
    y, expected = long_conv(x, *kernels), torch.einsum("dts,bds->bdt", matrix, x)
    assert_close("y", y, expected)
    weight = torch.randn_like(y)
    actual = torch.autograd.grad((y * weight).sum(), (x, *kernels))
    wanted = torch.autograd.grad((expected * weight).sum(), (x, *kernels), allow_unused=True)
    for index, pair in enumerate(zip(actual, wanted, strict=True)):
        ours, theirs = pair
        assert_close(f"gradient {index}", ours, torch.zeros_like(ours) if theirs is None else theirs)


def test_half_precision_is_computed_in_float32() -> None:
    x, h = torch.randn(2, 3, 32, dtype=torch.bfloat16), torch.randn(3, 32)
    assert torch.equal(long_conv(x, h), long_conv(x.float(), h).bfloat16())
