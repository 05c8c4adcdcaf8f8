"""The sine network's kernels, on a GPU or in Triton's interpreter: output and every gradient against float64."""

import copy

import pytest
import torch
from helpers import assert_close
from kernel_checks import DEVICE

from orchid import ImplicitFilter
from orchid.nn.fused import fused_hidden
from orchid.nn.implicit_filter2d import ImplicitFilter2d

pytest.importorskip("triton", reason="needs Triton")
import triton
import triton.language as tl

from orchid.ops.kernels.static import network as module
from orchid.ops.kernels.static.network import sines
from orchid.ops.kernels.static.waves import cosine, sine


def results(network: ImplicitFilter | ImplicitFilter2d, *, fused: bool, half: bool = False) -> dict[str, torch.Tensor]:
    """Return the hidden layer and the gradients of a fixed random sum of it."""
    lags, units = network.lags()
    layers = network.weights, network.biases, network.frequency
    hidden = sines(*layers, lags, units, half=half) if fused else network.hidden()
    weight = torch.randn(hidden.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    inside = {name: p for name, p in network.named_parameters() if name != "output"}
    grads = torch.autograd.grad((hidden * weight.to(hidden)).sum(), list(inside.values()))
    return {"hidden": hidden, **dict(zip(inside, grads, strict=True))}


def build(n: int, embedding: int = 5, width: int = 64, grid: float | None = None) -> ImplicitFilter:
    torch.manual_seed(0)
    network = ImplicitFilter(2, n, embedding=embedding, width=width, grid=grid)
    torch.nn.init.normal_(network.frequency, 3.0, 0.5)
    return network


@pytest.mark.parametrize(
    ("n", "embedding", "width", "grid"),
    [(64, 5, 64, None), (37, 1, 20, 29.0), (1, 3, 16, None), (96, 33, 80, None), (40, 5, 200, 64.0)],
    ids=str,
)
def test_output_and_every_gradient(n: int, embedding: int, width: int, grid: float | None) -> None:
    """float32: an angle of 16 pi (embedding 33) is known to 3e-6, and the frequency multiplies its error twice."""
    network = build(n, embedding, width, grid)
    exact = results(copy.deepcopy(network).double(), fused=False)
    ours = results(network.to(DEVICE), fused=True)
    for name, expected in exact.items():
        assert_close(name, ours[name].cpu(), expected.float(), 1e-5)


@pytest.mark.parametrize(("rows", "columns", "embedding"), [(8, 8, 5), (5, 9, 3), (1, 6, 1)], ids=str)
def test_lags_of_a_torus(rows: int, columns: int, embedding: int) -> None:
    torch.manual_seed(0)
    network = ImplicitFilter2d(2, rows, columns, embedding=embedding, width=20)
    exact = results(copy.deepcopy(network).double(), fused=False)
    ours = results(network.to(DEVICE), fused=True)
    for name, expected in exact.items():
        assert_close(name, ours[name].cpu(), expected.float(), 1e-5)


def test_more_tiles_than_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program goes through several tiles of lags, the last of them past the end, and shares are added in turns."""
    monkeypatch.setattr(module, "PARTS", 3)
    monkeypatch.setattr(module, "PARTS_AT_ONCE", 2)
    network = build(330, width=24)
    exact = results(copy.deepcopy(network).double(), fused=False)
    ours = results(network.to(DEVICE), fused=True)
    for name, expected in exact.items():
        assert_close(name, ours[name].cpu(), expected.float(), 1e-5)


def test_parameters_in_half_precision() -> None:
    """The grid and the products stay float32; gradients come in the parameters' type."""
    network = build(48).bfloat16()
    exact = results(copy.deepcopy(network).double(), fused=False)
    ours = results(network.to(DEVICE), fused=True)
    assert ours["hidden"].dtype == torch.float32
    assert_close("hidden", ours["hidden"].cpu(), exact.pop("hidden").float(), 3e-6)
    for name, expected in exact.items():
        assert ours[name].dtype == torch.bfloat16
        assert_close(name, ours[name].cpu().float(), expected.float(), 3e-3)


def test_one_term_of_gradients() -> None:
    """For bfloat16 streams: the output is the same, gradients are off by TF32's rounding of operands, 2^-12 each."""
    network = build(96, width=80)
    exact = results(copy.deepcopy(network).double(), fused=False)
    whole, ours = (results(network.to(DEVICE), fused=True, half=half) for half in (False, True))
    assert torch.equal(ours.pop("hidden"), whole["hidden"])
    for name, value in ours.items():
        assert_close(name, value.cpu(), exact[name].float(), 2**-10)
        if "weights" in name:  # sums of products; those of biases need none in the last layer
            assert not torch.equal(value, whole[name]), f"{name} has three terms"


def test_the_same_bits_every_time() -> None:
    network = build(300).to(DEVICE)
    first, second = results(network, fused=True), results(network, fused=True)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_wide_embeddings_take_the_library() -> None:
    network = build(40, embedding=65)
    assert torch.equal(fused_hidden(network, half=False), network.hidden())


def test_operator() -> None:
    network = build(40, width=16).to(DEVICE)
    layers = [t for layer in zip(network.weights, network.biases, strict=True) for t in layer]
    torch.library.opcheck(module._sines.op, (*layers, network.frequency, [40], [0.05], False))


@pytest.mark.parametrize("size", [3.0, 50.0, 2e4])
def test_sines_and_cosines(size: float) -> None:
    """To the last bits, of arguments as large as this; whatever is larger stays bounded."""
    x = torch.linspace(-size, size, 1024, device=DEVICE)
    ours = both_waves(x)
    for values, expected in zip(ours, (x.double().sin(), x.double().cos()), strict=True):
        assert (values.double() - expected).abs().max() < 2e-7


@pytest.mark.filterwarnings("ignore:invalid value")  # the interpreter's own
def test_sines_of_what_is_huge_or_not_finite() -> None:
    x = torch.tensor([3e38, -1e9, float("inf"), float("nan")] * 256, device=DEVICE)
    for values in both_waves(x):
        assert values.view(-1, 4)[:, :2].abs().max() <= 1
        assert values.view(-1, 4)[:, 2:].isnan().all()


def both_waves(x: torch.Tensor) -> list[torch.Tensor]:
    out = torch.empty(2, x.numel(), device=DEVICE)
    waves_kernel[(1,)](x, out, BLOCK=x.numel())
    return list(out)


@triton.jit
def waves_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, sine(tl.load(x + at)))
    tl.store(out + BLOCK + at, cosine(tl.load(x + at)))
