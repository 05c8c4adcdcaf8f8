"""LayerNorm's kernels, on a GPU or in Triton's interpreter, and who takes them."""

import copy

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orchid import OrchidBlock
from orchid.models.sequence import SequenceModel
from orchid.models.vit import OrchidViT
from orchid.nn.norm import LayerNorm

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels.norm import operator

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def several_tiles_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TILE": 128, "FORWARD_PROGRAMS": 3, "BACKWARD_PROGRAMS": 3}.items():
        monkeypatch.setattr(operator, name, value)


def results(norm: LayerNorm, x: Tensor, *, kernels: bool) -> dict[str, Tensor]:
    """Return the output, and the gradients of x and of the parameters for one from above."""
    leaf = x.detach().requires_grad_()
    y = norm._by_kernels(leaf) if kernels else torch.nn.LayerNorm.forward(norm, leaf)
    upstream = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(y)
    dx, dweight, dbias = torch.autograd.grad(y, [leaf, norm.weight, norm.bias], upstream)
    return {"y": y.detach(), "x": dx, "weight": dweight, "bias": dbias}


def build(width: int, dtype: torch.dtype) -> LayerNorm:
    norm = LayerNorm(width)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    return norm.to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "width"), [((3, 7), 24), ((5,), 128), ((2, 3, 5), 100), ((1,), 1)], ids=str)
def test_against_float64(shape: tuple[int, ...], width: int, dtype: torch.dtype) -> None:
    norm, x = build(width, dtype), torch.randn(*shape, width, device=DEVICE, dtype=dtype) * 3 + 2
    exact = results(copy.deepcopy(norm).double(), x.double(), kernels=False)
    ours, library = results(norm, x, kernels=True), results(norm, x, kernels=False)
    for name, value in exact.items():
        assert ours[name].dtype == dtype and ours[name].shape == value.shape
        if not value.any():
            # One channel has no variance: dx is (w dy - w dy) / sqrt(eps), and a fused multiplication rounds one of the
            # two only, by half a unit in the last place; |dy| is at most 4 here.
            rounding = torch.finfo(torch.float32).eps / 2 * 4 * norm.weight.abs().max() / norm.eps**0.5
            assert ours[name].abs().max() <= rounding
            continue
        allowed = max(1.2 * relative_error(library[name], value), 1e-6)
        assert relative_error(ours[name], value) <= allowed, name


def test_strided_input_and_the_same_bits() -> None:
    norm, x = build(24, torch.float32), torch.randn(5, 24, 40, device=DEVICE).transpose(1, 2)
    first, again, library = (results(norm, x, kernels=kernels) for kernels in (True, True, False))
    for name, value in library.items():
        assert torch.equal(first[name], again[name]) and relative_error(first[name], value) < 1e-6


def test_a_large_mean_costs_what_rounding_does() -> None:
    """Variance is of differences, not a difference of squares."""
    norm, x = build(64, torch.float32), torch.randn(9, 64, device=DEVICE) + 1e4
    exact = results(copy.deepcopy(norm).double(), x.double(), kernels=False)
    for name, value in results(norm, x, kernels=True).items():
        assert relative_error(value, exact[name]) < 5e-3, name  # 1e4 is rounded by 5e-4, deviations are 1


def test_autocast_has_its_type_at_once() -> None:
    norm, x = build(24, torch.float32), torch.randn(5, 24, device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        ours, library = (results(norm, x, kernels=kernels) for kernels in (True, False))
    assert ours["y"].dtype == torch.bfloat16 and ours["weight"].dtype == torch.float32
    for name, value in library.items():
        assert relative_error(ours[name], value) < 2**-7


def test_what_no_projection_reads_is_not_rounded() -> None:
    norm, x = LayerNorm(24, rounded=False).to(DEVICE), torch.randn(5, 24, device=DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        ours, library = (results(norm, x, kernels=kernels) for kernels in (True, False))
        half = results(norm, x.bfloat16(), kernels=True)
    assert ours["y"].dtype == half["y"].dtype == torch.float32
    for name, value in library.items():
        assert relative_error(ours[name], value) < 1e-6
    assert results(norm, x, kernels=True)["y"].dtype == torch.float32
    assert results(norm.bfloat16(), x.bfloat16(), kernels=True)["y"].dtype == torch.bfloat16  # where no autocast is on


def test_no_tokens() -> None:
    norm = build(24, torch.float32)
    empty = results(norm, torch.empty(0, 24, device=DEVICE), kernels=True)
    assert empty["y"].shape == (0, 24) and not empty["weight"].any()


def test_operator() -> None:
    x = torch.randn(5, 24, device=DEVICE, requires_grad=True)
    weight, bias = (torch.randn(24, device=DEVICE, requires_grad=True) for _ in range(2))
    torch.library.opcheck(operator._norm.op, (x, weight, bias, 1e-5, torch.float32))


def test_checkpointing_changes_nothing() -> None:
    norm, x = build(24, torch.float32), torch.randn(5, 24, device=DEVICE, requires_grad=True)
    once = torch.autograd.grad(norm._by_kernels(x).square().sum(), x)[0]
    again = torch.autograd.grad(checkpoint(norm._by_kernels, x, use_reentrant=False).square().sum(), x)[0]
    assert torch.equal(once, again)


def test_who_is_served() -> None:
    norm, x = LayerNorm(8).to(DEVICE), torch.randn(3, 8, device=DEVICE)
    assert norm._fused(x) == (DEVICE == "cuda")
    assert not norm._fused(x.double()) and not LayerNorm(8, backend="torch").to(DEVICE)._fused(x)
    assert isinstance(norm, torch.nn.LayerNorm)  # libraries look for it
    with pytest.raises(ValueError, match="backend"):
        LayerNorm(8, backend="cuda")
    with pytest.raises(RuntimeError, match="normalized_shape"):
        norm(torch.randn(3, 6, device=DEVICE))


def test_what_has_no_kernels_has_none_in_its_norms() -> None:
    without = {"backend": "torch"}
    assert OrchidBlock(8, 16, mixer_options=without).mlp_norm.backend == "torch"
    for model in (
        SequenceModel(8, 16, depth=1, out_features=4, vocab_size=4, options=without),
        OrchidViT(8, 4, d_model=8, options=without),
        OrchidViT(8, 4, d_model=8, options=without, mixer="orchid-2d"),
    ):
        assert all(norm.backend == "torch" for norm in model.modules() if isinstance(norm, LayerNorm))
    block = OrchidBlock(8, 16)
    assert block.mixer_norm.backend == "auto"
    assert next(name for name, _ in block.named_parameters()) == "mixer_norm.weight"  # optimizers count on the order
