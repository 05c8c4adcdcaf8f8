import copy

import pytest
import torch
from helpers import assert_close

from orchid import ImplicitFilter, OrchidMixer
from orchid.nn.static_kernel import StaticKernel
from orchid.ops import reference
from orchid.ops.transforms import get_transform


@pytest.mark.parametrize(("embedding", "width"), [(5, 64), (1, 3), (9, 16)])
@pytest.mark.parametrize("n", [1, 2, 7, 16])
def test_is_the_written_formula(n: int, embedding: int, width: int) -> None:
    filter_ = ImplicitFilter(4, n, embedding=embedding, width=width).double()
    weights, biases = [*filter_.weights, filter_.output], list(filter_.biases)
    expected = reference.static_kernel(weights, biases, filter_.frequency, n=n, grid=n)
    assert_close("h0", filter_(), expected)


def test_looks_both_ways_alike() -> None:
    """The envelope depends on the circular distance min(t, n - t), so lag -k is as reachable as lag k."""
    filter_ = ImplicitFilter(512, 64)
    h0 = filter_().detach()
    power = h0.square().mean(dim=0).tolist()
    assert sum(power[1:8]) == pytest.approx(sum(power[-7:]), rel=0.35)
    assert sum(power[28:36]) < 0.3 * sum(power[:4] + power[-4:])


@pytest.mark.parametrize("n", [64, 512, 4096])
def test_norm_is_of_order_one_at_any_length(n: int) -> None:
    norms = ImplicitFilter(64, n)().norm(dim=1)
    assert 0.2 < norms.mean() < 1.5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_make_a_float32_kernel(dtype: torch.dtype) -> None:
    filter_ = ImplicitFilter(4, 1000).to(dtype)
    h0 = filter_()
    assert h0.dtype == torch.float32
    assert_close("h0", h0, filter_.double()(), 1e-5)


@pytest.mark.parametrize("kind", ["dft", "dct"])
def test_the_delta_tap_passes_the_input_through(kind: str) -> None:
    transform = get_transform(kind)
    static = StaticKernel(3, 8, transform=transform, embedding=5, width=4, grid=None).double()
    torch.nn.init.zeros_(static.filter.output)
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    y = transform.inverse(transform.forward(x, 8) * static(), 8)
    assert_close("y", y, static.delta[:, None] * x)


class TestFrozen:
    """A frozen layer computes its static spectrum once; whatever may change the weights makes it compute again."""

    @pytest.fixture
    def mixer(self) -> OrchidMixer:
        return OrchidMixer(3, 16, residual_conv=True)

    def test_kept_and_right(self, mixer: OrchidMixer) -> None:
        x = torch.randn(2, 16, 3)
        before = mixer(x)
        static = mixer.freeze().stages[0].static
        assert static() is static() and torch.equal(mixer(x), before)
        assert not any(p.requires_grad for p in mixer.parameters())
        assert static() is not mixer.unfreeze().stages[0].static() and mixer(x).requires_grad

    def test_not_without_being_asked(self, mixer: OrchidMixer) -> None:
        """Updates that leave no trace, as through ``.data`` or a replayed graph, must be seen."""
        static = mixer.requires_grad_(False).stages[0].static
        before = static()
        static.delta.data.add_(1.0)
        assert not torch.equal(static(), before)

    @pytest.mark.parametrize("change", ["load", "cast"])
    def test_a_changed_layer_computes_again(self, mixer: OrchidMixer, change: str) -> None:
        static = mixer.freeze().stages[0].static
        before = static()
        if change == "load":
            mixer.load_state_dict({name: value + 1 for name, value in mixer.state_dict().items()})
        else:
            mixer.double()
        assert static().dtype != before.dtype or not torch.equal(static(), before)

    def test_gradients_of_the_input_after_inference_mode(self, mixer: OrchidMixer) -> None:
        with torch.inference_mode():
            mixer.freeze()
        x = torch.randn(2, 16, 3, requires_grad=True)
        mixer(x).sum().backward()
        assert x.grad is not None

    def test_copies_and_checkpoints_do_not_hold_it(self, mixer: OrchidMixer) -> None:
        mixer.freeze()
        assert copy.deepcopy(mixer).stages[0].static._kept is None
        assert not any("kept" in name for name in mixer.state_dict())
