import pytest
import torch
from helpers import assert_close

from orchid import OrchidBlock, OrchidMixer, list_mixers
from orchid.models.sequence import SequenceModel, sinusoidal_positions


@pytest.mark.parametrize("mlp", ["plain", "gated"])
@pytest.mark.parametrize("blocks", [1, 4])
@pytest.mark.parametrize("mixer", list_mixers())
def test_block(mixer: str, blocks: int, mlp: str) -> None:
    block = OrchidBlock(8, 12, mixer=mixer, mlp=mlp, blocks=blocks).double()
    x, mask = torch.randn(2, 12, 8, dtype=torch.float64), torch.rand(2, 12) > 0.3
    y = x + block.mixer(block.mixer_norm(x), mask)
    assert_close("y", block(x, mask)[mask], (y + block.mlp(block.mlp_norm(y)))[mask])
    block(x).sum().backward()
    assert all(p.grad is not None for p in block.parameters())


@pytest.mark.parametrize("mixer", list_mixers())
def test_nan_at_masked_positions_reaches_no_gradient(mixer: str) -> None:
    block = OrchidBlock(8, 12, mixer=mixer).double()
    x, mask = torch.randn(2, 12, 8, dtype=torch.float64), torch.rand(2, 12) > 0.3
    gradients = []
    for rubbish in (0.0, float("nan")):
        block.zero_grad()
        block(x.masked_fill(~mask[..., None], rubbish), mask)[mask].square().sum().backward()
        gradients.append([p.grad for p in block.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_block_passes_options_on() -> None:
    block = OrchidBlock(8, 12, mixer_options={"conditioning": "cross", "order": 2})
    assert (block.mixer.conditioning, block.mixer.order) == ("cross", 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixer_options": {"d_model": 4}}, "mixer_options has 'd_model', which is an argument of the block"),
        ({"mixer_options": [1]}, r"mixer_options=\[1\] must be a mapping"),
        ({"mixer": OrchidMixer(4, 12)}, "mixer has d_model=4; expected that of the block, 8"),
        ({"mixer": OrchidMixer(8, 12), "mixer_options": {"order": 2}}, "mixer_options need a mixer given by name"),
    ],
)
def test_a_block_says_what_does_not_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OrchidBlock(8, 12, **options)


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned"])
@pytest.mark.parametrize("mixer", list_mixers())
class TestSequenceModel:
    def test_tokens(self, mixer: str, positions: str) -> None:
        model = SequenceModel(8, 12, depth=2, out_features=5, vocab_size=7, mixer=mixer, positions=positions)
        y = model(torch.randint(7, (3, 9)))
        assert y.shape == (3, 9, 5)
        y.square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())

    def test_padding_changes_nothing(self, mixer: str, positions: str) -> None:
        model = SequenceModel(8, 16, depth=2, out_features=5, in_features=3, mixer=mixer, positions=positions).double()
        x = torch.randn(2, 7, 3, dtype=torch.float64)
        padded = torch.cat((x, torch.full((2, 5, 3), float("nan"), dtype=torch.float64)), dim=1)
        mask = (torch.arange(12) < 7).expand(2, -1)
        assert_close("y", model(padded, mask)[:, :7], model(x))


def test_checkpointing_changes_nothing() -> None:
    """Recomputing a block in backward gives the same gradients."""
    block = OrchidBlock(8, 12).double()
    x = torch.randn(2, 12, 8, dtype=torch.float64, requires_grad=True)
    (plain,) = torch.autograd.grad(block(x).square().sum(), x)
    y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(y.square().sum(), x)[0], plain)


def test_sinusoidal_positions_tell_positions_apart() -> None:
    table = sinusoidal_positions(50, 9, torch.device("cpu"))
    assert table.shape == (50, 9)
    assert torch.cdist(table, table).fill_diagonal_(9.0).min() > 0.1


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="exactly one of vocab_size"):
        SequenceModel(8, 12, depth=1, out_features=2)
    with pytest.raises(ValueError, match="exactly one of vocab_size"):
        SequenceModel(8, 12, depth=1, out_features=2, vocab_size=3, in_features=3)
    model = SequenceModel(8, 12, depth=1, out_features=2, vocab_size=3)
    with pytest.raises(ValueError, match="inputs have length 13, longer than max_length=12"):
        model(torch.zeros(1, 13, dtype=torch.long))
    with pytest.raises(ValueError, match="integer tokens"):
        model(torch.zeros(1, 12))
    with pytest.raises(ValueError, match=r"mask has dtype torch\.float32"):
        model(torch.zeros(1, 12, dtype=torch.long), torch.ones(1, 12))
    with pytest.raises(ValueError, match="inputs have 4 features; expected in_features=3"):
        SequenceModel(8, 12, depth=1, out_features=2, in_features=3)(torch.zeros(1, 12, 4))
    with pytest.raises(ValueError, match="d_model=-1"):
        SequenceModel(-1, 12, depth=1, out_features=2, vocab_size=3)
    with pytest.raises(ValueError, match="positions='rotary' is not one of"):
        SequenceModel(8, 12, depth=1, out_features=2, vocab_size=3, positions="rotary")
