import pytest
import torch
from helpers import assert_close

from orchid import BlockDiagonalLinear
from orchid.nn.mlp import MLP
from orchid.ops import reference


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("size_in", "size_out", "blocks"), [(8, 8, 4), (6, 9, 3), (5, 7, 1), (4, 4, 4)])
def test_equals_the_dense_matrix(size_in: int, size_out: int, blocks: int, bias: bool) -> None:
    layer = BlockDiagonalLinear(size_in, size_out, blocks, bias).double()
    x = torch.randn(2, 3, size_in, dtype=torch.float64, requires_grad=True)
    assert layer.weight.shape == (blocks, size_out // blocks, size_in // blocks)
    y, expected = layer(x), reference.block_diagonal_product(x, layer.weight, layer.bias)
    assert_close("y", y, expected)
    upstream = torch.randn_like(y)
    leaves = [x, *layer.parameters()]
    for actual, wanted in zip(
        torch.autograd.grad(y, leaves, upstream), torch.autograd.grad(expected, leaves, upstream), strict=True
    ):
        assert_close("gradient", actual, wanted)


def test_gradcheck_on_strided_input() -> None:
    layer = BlockDiagonalLinear(4, 6, 2).double()
    x = torch.randn(4, 3, dtype=torch.float64).T.requires_grad_()
    assert torch.autograd.gradcheck(layer, x)


def test_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert BlockDiagonalLinear(4, 6, 2)(torch.randn(3, 4)).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", ["plain", "gated"])
@pytest.mark.parametrize("blocks", [1, 4])
def test_mlp(kind: str, blocks: int) -> None:
    mlp = MLP(8, kind=kind, blocks=blocks, expansion=2).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64)

    def dense(layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        weight = layer.weight if blocks > 1 else layer.weight[None]
        return reference.block_diagonal_product(x, weight, layer.bias)

    hidden = torch.nn.functional.gelu(dense(mlp.up, x))
    if kind == "gated":
        hidden = hidden * dense(mlp.gate, x)
    assert_close("y", mlp(x), dense(mlp.down, hidden))
    matrices = 3 if kind == "gated" else 2
    weights = sum(p.numel() for n, p in mlp.named_parameters() if n.endswith("weight"))
    assert weights == matrices * 8 * 16 // blocks


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="in_features=6 must be divisible by blocks=4"):
        BlockDiagonalLinear(6, 8)
    with pytest.raises(ValueError, match="out_features=6 must be divisible by blocks=4"):
        BlockDiagonalLinear(8, 6)
    with pytest.raises(ValueError, match="blocks=0"):
        BlockDiagonalLinear(8, 8, 0)
    with pytest.raises(ValueError, match=r"x has shape \(2, 7\); expected \(..., in_features=8\)"):
        BlockDiagonalLinear(8, 8)(torch.zeros(2, 7))
    with pytest.raises(ValueError, match="mlp='swiglu' is not one of 'plain', 'gated'"):
        MLP(8, kind="swiglu")
