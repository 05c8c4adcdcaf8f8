"""The contract of every registered mixer: (x, mask) -> y, whatever is behind the mask."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close

from orchid import create_mixer, list_mixers
from orchid.mixers.attention import Attention


def test_list() -> None:
    assert list_mixers() == ["attention", "ckconv", "h3", "hyena", "mamba", "monarch", "orchid", "performer", "s4"]


@pytest.mark.parametrize("name", list_mixers())
class TestContract:
    def test_shape_and_gradients(self, name: str) -> None:
        mixer = create_mixer(name, 12, 16)
        for length in (1, 2, 16):
            x = torch.randn(3, length, 12, requires_grad=True)
            y = mixer(x)
            assert y.shape == x.shape
            y.square().sum().backward()
            assert torch.isfinite(x.grad).all()
        assert all(p.grad is not None for p in mixer.parameters())

    def test_masked_content_reaches_nothing(self, name: str) -> None:
        mixer = create_mixer(name, 12, 16).double()
        x = torch.randn(3, 16, 12, dtype=torch.float64)
        mask = torch.rand(3, 16) > 0.3
        mask[1] = False
        y = mixer(x.masked_fill(~mask[..., None], float("nan")), mask)
        assert_close("y", y[mask], mixer(x, mask)[mask])
        assert torch.isfinite(y).all()

    def test_padding_changes_nothing(self, name: str) -> None:
        mixer, x = create_mixer(name, 12, 32).double(), torch.randn(2, 10, 12, dtype=torch.float64)
        padded, mask = F.pad(x, (0, 0, 0, 13), value=7.0), (torch.arange(23) < 10).expand(2, -1)
        assert_close("y", mixer(padded, mask)[:, :10], mixer(x))

    def test_bad_input(self, name: str) -> None:
        mixer = create_mixer(name, 12, 16)
        with pytest.raises(ValueError, match="x has length 17, longer than max_length=16"):
            mixer(torch.zeros(1, 17, 12))
        with pytest.raises(ValueError, match="mask has dtype"):
            mixer(torch.zeros(1, 16, 12), torch.ones(1, 16))
        with pytest.raises(ValueError, match="max_length=0"):
            create_mixer(name, 12, 0)


@pytest.mark.parametrize("name", list_mixers())
class TestSurroundings:
    """What PyTorch does to modules."""

    def test_initialisation_that_comes_later(self, name: str) -> None:
        """Memory first, numbers by every module's ``reset_parameters``: as if built at once."""
        later, built = create_mixer(name, 48, 32), create_mixer(name, 48, 32)
        tensors = later.state_dict(keep_vars=True)
        with torch.no_grad():
            for tensor in tensors.values():
                tensor.fill_(torch.nan)
        for module in later.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
        for key, value in built.state_dict().items():
            assert torch.isfinite(tensors[key]).all(), key
            if value.numel() > 90:  # two draws of so many numbers are alike
                spread = float(tensors[key].detach().double().square().mean().sqrt())
                assert spread == pytest.approx(float(value.double().square().mean().sqrt()), rel=0.5), key

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
    def test_default_dtypes(self, name: str, dtype: torch.dtype) -> None:
        torch.set_default_dtype(dtype)
        try:
            mixer = create_mixer(name, 8, 8)
            assert {tensor.dtype for tensor in mixer.state_dict().values()} == {dtype}
            assert mixer(torch.randn(2, 5, 8)).dtype == dtype
        finally:
            torch.set_default_dtype(torch.float32)

    @pytest.mark.filterwarnings("ignore")  # the library's own, of vmap's fallbacks
    def test_gradients_of_every_sample(self, name: str) -> None:
        """torch.func: vmap of grad, with masks, equals a loop."""
        mixer, x, mask = create_mixer(name, 4, 8).double(), torch.randn(3, 5, 4).double(), torch.rand(3, 5) > 0.3
        mask[:, 0] = True
        parameters = {key: p.detach() for key, p in mixer.named_parameters()}

        def loss(p: dict[str, torch.Tensor], x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            y = torch.func.functional_call(mixer, p, (x[None], mask[None]))
            return y[0].masked_fill(~mask[:, None], 0.0).square().sum()

        together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, mask)
        alone = [torch.func.grad(loss)(parameters, *sample) for sample in zip(x, mask, strict=True)]
        for key, value in together.items():
            assert_close(key, value, torch.stack([grads[key] for grads in alone]), 1e-9)


def test_unknown_names_and_options() -> None:
    with pytest.raises(ValueError, match=r"mixer 'orchyd' is not one of attention, .*, s4; did you mean 'orchid'"):
        create_mixer("orchyd", 8, 8)
    with pytest.raises(ValueError, match="mixer 'orchid' has no option 'conditionning'; did you mean 'conditioning'"):
        create_mixer("orchid", 8, 8, conditionning="cross")
    with pytest.raises(ValueError, match="not causal"):
        create_mixer("orchid", 8, 8, causal=True)


class TestAttention:
    def test_is_softmax_attention(self) -> None:
        mixer = Attention(8, 16, heads=2).double()
        x, mask = torch.randn(2, 6, 8, dtype=torch.float64), torch.rand(2, 6) > 0.3
        mask[:, 0] = True
        q, k, v = (t.view(2, 6, 2, 4).transpose(1, 2) for t in mixer.in_proj(x).chunk(3, dim=-1))
        scores = (q @ k.transpose(-1, -2) / 2).masked_fill(~mask[:, None, None], float("-inf"))
        expected = mixer.out_proj((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(2, 6, 8))
        assert_close("y", mixer(x, mask)[mask], expected[mask])

    @pytest.mark.parametrize(("d_model", "heads"), [(8, 1), (64, 1), (128, 2), (768, 12), (220, 2)])
    def test_default_heads(self, d_model: int, heads: int) -> None:
        assert Attention(d_model, 4).heads == heads

    def test_heads_must_divide(self) -> None:
        with pytest.raises(ValueError, match="heads=3 must divide d_model=8"):
            Attention(8, 4, heads=3)
