"""The block-diagonal MLP's kernels, on a GPU or in Triton's interpreter: output and every gradient."""

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE
from mlp_checks import checkpointed, gradients, layer_by_layer
from torch.utils._python_dispatch import TorchDispatchMode

from orchid import OrchidBlock
from orchid.nn.mlp import MLP

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels.mlp import blocks as block_mlp
from orchid.ops.kernels.mlp import token_products, whole
from orchid.ops.kernels.surroundings import hooked

KINDS = ["plain", "gated"]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_mlp, "TILE", 64)
    monkeypatch.setattr(block_mlp, "COLUMNS", 16)
    monkeypatch.setattr(block_mlp, "PROGRAMS", 4)  # several tiles a program
    monkeypatch.setattr(token_products, "TOKENS", 16)
    monkeypatch.setattr(token_products, "LEAST", 1)
    monkeypatch.setattr(token_products, "PROGRAMS", 8)


@pytest.fixture(autouse=True)
def hidden_layer_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones have a kernel of their own: ``test_whole_mlp.py``."""
    monkeypatch.setattr(whole, "serves", lambda *given: False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_against_float64(kind: str, dtype: torch.dtype) -> None:
    mlp = MLP(24, kind=kind, blocks=4, expansion=3).to(DEVICE, dtype)
    x = torch.randn(3, 7, 24, device=DEVICE, dtype=dtype)
    exact = MLP(24, kind=kind, blocks=4, expansion=3).to(DEVICE, torch.float64)
    exact.load_state_dict(mlp.state_dict())
    ours = gradients(mlp, mlp._by_blocks, x)
    plain = gradients(mlp, layer_by_layer(mlp), x)
    for name, value in gradients(exact, exact, x.double()).items():
        error, allowed = relative_error(ours[name], value), relative_error(plain[name], value)
        limit = 1e-6 if dtype == torch.float32 else 1.5 * allowed
        assert error <= limit, f"{name}: {error:.2e}, layer by layer {allowed:.2e}"


@pytest.mark.parametrize("kind", KINDS)
def test_strided_input_autocast_and_the_same_bits(kind: str) -> None:
    mlp, x = MLP(8, kind=kind, blocks=2).to(DEVICE), torch.randn(5, 8, 3, device=DEVICE).transpose(1, 2)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        first, second = (gradients(mlp, mlp._by_blocks, x) for _ in range(2))
    assert first["y"].dtype == torch.bfloat16 and first["up.weight"].dtype == torch.float32
    for name, value in gradients(mlp, layer_by_layer(mlp), x).items():
        assert torch.equal(first[name], second[name])
        assert relative_error(first[name], value) < 2e-2  # of bfloat16 products


@pytest.mark.parametrize("tokens", [5, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_operators(kind: str, tokens: int) -> None:
    mlp, x = MLP(8, kind=kind, blocks=2).to(DEVICE), torch.randn(tokens, 8, device=DEVICE, requires_grad=True)
    gate, gate_bias = (None, None) if mlp.gate is None else (mlp.gate.weight, mlp.gate.bias)
    arguments = (x, mlp.up.weight, mlp.up.bias, gate, gate_bias)
    torch.library.opcheck(block_mlp._hidden.op, arguments)
    hidden = torch.randn(2, tokens, 16, device=DEVICE, requires_grad=True)
    torch.library.opcheck(block_mlp._from_blocks.op, (hidden, mlp.down.weight, mlp.down.bias))


@pytest.mark.parametrize("kind", KINDS)
def test_strided_biases(kind: str) -> None:
    mlp, x = MLP(8, kind=kind, blocks=2).to(DEVICE), torch.randn(5, 8, device=DEVICE)
    expected = gradients(mlp, mlp._by_blocks, x)
    for layer in mlp._layers():
        layer.bias = torch.nn.Parameter(torch.stack((layer.bias.detach(), torch.zeros_like(layer.bias)), 1)[:, 0])
        assert layer.bias.stride() == (2,)
    assert all(torch.equal(value, expected[name]) for name, value in gradients(mlp, mlp._by_blocks, x).items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_one_token_leaves_the_bias_as_it_is(dtype: torch.dtype) -> None:
    mlp, x = MLP(8, blocks=2).to(DEVICE, dtype), torch.randn(1, 1, 8, device=DEVICE, dtype=dtype)
    before = mlp.down.bias.detach().clone()
    assert relative_error(mlp._by_blocks(x), layer_by_layer(mlp)(x)) < 2e-2
    assert torch.equal(mlp.down.bias, before)


def test_many_tokens_are_on_the_axis_that_has_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second and third axis of a launch end at 65,535."""
    grids = []
    spy = type("Spy", (), {"__getitem__": lambda self, grid: lambda *given, **more: grids.append(grid)})()
    monkeypatch.setattr(block_mlp, "activation_kernel", spy)
    monkeypatch.setattr(block_mlp, "TILE", 1)
    mlp = MLP(2, blocks=1, expansion=1)
    block_mlp.block_hidden(torch.zeros(70_000, 2), mlp.up.weight[None].detach(), mlp.up.bias.detach(), None, None)
    assert grids == [(70_000, 1, 1)]


def test_no_gradients_for_what_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    mlp, x = MLP(8, kind="gated", blocks=2).to(DEVICE), torch.randn(5, 8, device=DEVICE, requires_grad=True)
    y = mlp._by_blocks(x)
    made = []

    class Zeros(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            if "zeros" in str(function):
                made.append(args)
            return function(*args, **(kwargs or {}))

    with Zeros():
        y.sum().backward()
    assert not made


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_changes_nothing(kind: str) -> None:
    mlp, x = MLP(8, kind=kind, blocks=2).to(DEVICE), torch.randn(5, 8, device=DEVICE)
    once, again = gradients(mlp, mlp._by_blocks, x), gradients(mlp, checkpointed(mlp._by_blocks), x)
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_who_is_served() -> None:
    mlp = MLP(8, blocks=2).to(DEVICE)
    x = torch.randn(3, 8, device=DEVICE)
    assert mlp._fused(x) == (DEVICE == "cuda")
    assert not mlp._fused(x.double())
    assert not MLP(8).to(DEVICE)._fused(x)
    with pytest.raises(ValueError, match="expected"):
        mlp(torch.randn(3, 6, device=DEVICE))
    assert not MLP(8, blocks=2, backend="torch").to(DEVICE)._fused(x)
    for register in (
        mlp.up.register_forward_hook,
        mlp.up.register_full_backward_hook,
        mlp.up.register_forward_pre_hook,
    ):
        handle = register(lambda *_: None)
        assert not mlp._fused(x) and hooked(mlp.up)
        handle.remove()
        assert not hooked(mlp.up)
    mlp.up.forward = mlp.up.forward  # as offloading libraries do
    assert hooked(mlp.up)


def test_a_block_without_kernels_has_none_in_its_mlp() -> None:
    assert OrchidBlock(8, 16, blocks=2, mixer_options={"backend": "torch"}).mlp.backend == "torch"
    assert OrchidBlock(8, 16, blocks=2).mlp.backend == "auto"


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("kind", KINDS)
def test_compiled(kind: str) -> None:
    mlp, x = MLP(16, kind=kind, blocks=2).to(DEVICE), torch.randn(5, 16, device=DEVICE)
    compiled = torch.compile(mlp, fullgraph=True)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        expected, got = gradients(mlp, mlp, x), gradients(mlp, compiled, x)
    for name, value in expected.items():
        assert relative_error(got[name], value) < 1e-2
