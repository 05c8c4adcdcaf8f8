"""Small block-diagonal MLPs in one kernel each way, on a GPU or in Triton's interpreter: output and every gradient."""

from collections.abc import Iterator

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE
from mlp_checks import checkpointed, gradients, layer_by_layer

from orchid.nn.block_diagonal import BlockDiagonalLinear
from orchid.nn.mlp import MLP

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels.mlp import whole


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See to it that a test in here goes where it should, several tiles a program and several programs a block."""
    calls = []
    original = whole.whole_mlp
    monkeypatch.setattr(whole, "whole_mlp", lambda *given: (calls.append(given), original(*given))[1])
    for name in ("FORWARD_PROGRAMS", "BACKWARD_PROGRAMS"):
        monkeypatch.setattr(whole, name, 8)
    monkeypatch.setattr(whole, "TILES", 2)
    yield
    assert calls


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("width", "blocks", "expansion", "tokens"),
    [(128, 4, 4, 300), (24, 4, 3, 7), (60, 2, 4, 129), (16, 2, 4, 1), (24, 3, 2, 500)],
)
def test_against_float64(width: int, blocks: int, expansion: int, tokens: int, dtype: torch.dtype) -> None:
    mlp = MLP(width, blocks=blocks, expansion=expansion).to(DEVICE, dtype)
    x = torch.randn(tokens, width, device=DEVICE, dtype=dtype)
    exact = MLP(width, blocks=blocks, expansion=expansion).to(DEVICE, torch.float64)
    exact.load_state_dict(mlp.state_dict())
    ours = gradients(mlp, mlp._by_blocks, x)
    plain = gradients(mlp, layer_by_layer(mlp), x)
    for name, value in gradients(exact, exact, x.double()).items():
        error, allowed = relative_error(ours[name], value), relative_error(plain[name], value)
        assert error <= 1.5 * allowed, f"{name}: {error:.2e}, layer by layer {allowed:.2e}"


def test_strided_input_autocast_and_the_same_bits() -> None:
    mlp, x = MLP(32, blocks=2).to(DEVICE), torch.randn(5, 32, 40, device=DEVICE).transpose(1, 2)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        first, second = (gradients(mlp, mlp._by_blocks, x) for _ in range(2))
    assert first["y"].dtype == torch.bfloat16 and first["up.weight"].dtype == torch.float32
    for name, value in gradients(mlp, layer_by_layer(mlp), x).items():
        assert torch.equal(first[name], second[name])
        assert relative_error(first[name], value) < 2e-2  # of bfloat16 products


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of what is not finite
def test_what_is_not_finite_stays_in_its_token_and_block() -> None:
    mlp, x = MLP(32, blocks=2).to(DEVICE, torch.bfloat16), torch.randn(70, 32, device=DEVICE).bfloat16()
    clean = mlp._by_blocks(x)
    x[3, 5] = torch.nan
    y = mlp._by_blocks(x)
    expected = torch.zeros_like(y, dtype=torch.bool)
    expected[3, :16] = True
    assert torch.equal(y.isnan(), expected) and torch.equal(y[~expected], clean[~expected])
    x.requires_grad_()
    (dx,) = torch.autograd.grad(mlp._by_blocks(x).float().sum(), x)
    assert torch.equal(dx.isnan(), expected)


def test_strided_biases() -> None:
    mlp = MLP(32, blocks=2).to(DEVICE, torch.bfloat16)
    x = torch.randn(5, 32, device=DEVICE).bfloat16()
    expected = gradients(mlp, mlp._by_blocks, x)
    for layer in (mlp.up, mlp.down):
        layer.bias = torch.nn.Parameter(torch.stack((layer.bias.detach(), torch.zeros_like(layer.bias)), 1)[:, 0])
        assert layer.bias.stride() == (2,)
    assert all(torch.equal(value, expected[name]) for name, value in gradients(mlp, mlp._by_blocks, x).items())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's: squares overflow, and belong to zeros
def test_large_and_no_tokens() -> None:
    """Gelu of what is large is zero or itself, and no token gives no gradient."""
    mlp = MLP(32, blocks=2).to(DEVICE, torch.bfloat16)
    x = 1e30 * torch.randn(5, 32, device=DEVICE).bfloat16()
    exact = MLP(32, blocks=2).to(DEVICE, torch.float64)
    exact.load_state_dict(mlp.state_dict())
    assert relative_error(mlp._by_blocks(x), exact(x.double())) < 2e-2
    empty = gradients(mlp, mlp._by_blocks, x[:0])
    assert empty["y"].shape == (0, 32) and not any(grad.any() for name, grad in empty.items() if name != "x")


@pytest.mark.parametrize("tokens", [70, 1])
def test_operators(tokens: int) -> None:
    mlp = MLP(32, blocks=2).to(DEVICE, torch.bfloat16)
    x = torch.randn(tokens, 32, device=DEVICE).bfloat16().requires_grad_()
    arguments = (x, mlp.up.weight, mlp.up.bias, mlp.down.weight, mlp.down.bias)
    torch.library.opcheck(whole._whole.op, arguments)
    mlp._by_blocks(x)


def test_checkpointing_changes_nothing() -> None:
    mlp, x = MLP(32, blocks=2).to(DEVICE, torch.bfloat16), torch.randn(3, 32, device=DEVICE).bfloat16()
    once, again = gradients(mlp, mlp._by_blocks, x), gradients(mlp, checkpointed(mlp._by_blocks), x)
    assert all(torch.equal(once[name], again[name]) for name in once)


class TestOthers:
    """Who is not served stores its hidden layer."""

    @pytest.fixture(autouse=True)
    def served(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody in here."""

        def never(*given: object) -> None:
            raise AssertionError("not to be called")

        monkeypatch.setattr(whole, "whole_mlp", never)

    @pytest.mark.parametrize(
        "mlp",
        [
            MLP(32, blocks=2, kind="gated"),
            MLP(32, blocks=2, dropout=0.5),
            MLP(66, blocks=2),
            MLP(32, blocks=2, expansion=9),
        ],
        ids=["gated", "dropout", "wide", "wide hidden layer"],
    )
    def test_not_served(self, mlp: MLP) -> None:
        x = torch.randn(3, mlp.d_model, device=DEVICE)
        mlp.to(DEVICE)._by_blocks(x)
        mlp.bfloat16()._by_blocks(x.bfloat16())
        mlp.float()

    def test_dropout_that_acts_is_replaced_or_watched(self) -> None:
        x, seen = torch.randn(3, 32, device=DEVICE).bfloat16(), []
        mlp = MLP(32, blocks=2, dropout=0.5).to(DEVICE, torch.bfloat16).eval()
        mlp.dropout.train()  # as Monte Carlo dropout has it
        assert not torch.equal(mlp._by_blocks(x), mlp._by_blocks(x))
        mlp.dropout = torch.nn.Identity().train()
        mlp.train()._by_blocks(x)
        mlp.dropout = torch.nn.Dropout(0.0)
        mlp.dropout.register_forward_hook(lambda module, given, hidden: seen.append(hidden.shape))
        mlp._by_blocks(x)
        assert seen == [(2, 3, 64)]

    @pytest.mark.parametrize(
        "layers",
        [
            {"down": BlockDiagonalLinear(128, 32, blocks=4)},
            {"up": BlockDiagonalLinear(16, 64, blocks=2), "down": BlockDiagonalLinear(64, 16, blocks=2)},
        ],
        ids=["blocks", "widths"],
    )
    def test_layers_that_do_not_match(self, layers: dict[str, BlockDiagonalLinear]) -> None:
        mlp = MLP(32, blocks=2)
        for name, layer in layers.items():
            setattr(mlp, name, layer)
        mlp.to(DEVICE, torch.bfloat16)
        with pytest.raises(RuntimeError):
            mlp._by_blocks(torch.randn(3, 32, device=DEVICE).bfloat16())


class TestPrograms:
    """How many programs take how many tokens."""

    @pytest.fixture(autouse=True)
    def served(self) -> None:
        """Nothing is computed in here."""

    @pytest.mark.parametrize("blocks", [1, 3, 4, 8, 16, 20, 32, 1000])
    @pytest.mark.parametrize("size", [1, 70, 131_072])
    @pytest.mark.parametrize(
        ("rows", "programs", "least"),
        [(whole.FORWARD_ROWS, whole.FORWARD_PROGRAMS, 1), (whole.BACKWARD_ROWS, whole.BACKWARD_PROGRAMS, whole.TILES)],
        ids=["forward", "backward"],
    )
    def test_no_more_programs_than_fit_and_every_token_has_one(
        self, blocks: int, size: int, rows: int, programs: int, least: int
    ) -> None:
        """One beyond what the device holds at once would take as long again as all the others together."""
        steps, parts = whole._steps(size, blocks, rows, programs, least)
        assert parts * blocks <= max(programs, blocks)
        assert parts * steps * rows >= size > (parts - 1) * steps * rows
