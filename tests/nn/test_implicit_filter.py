import copy

import pytest
import torch
from helpers import assert_close

from orchid import ImplicitFilter
from orchid.nn.implicit_filter import StaticKernel
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


class TestKeptSpectrum:
    """Where no gradient is wanted the static kernel's spectrum is computed once, until a parameter changes."""

    @pytest.fixture
    def static(self) -> StaticKernel:
        return StaticKernel(3, 16, transform=get_transform("dft"), embedding=5, width=8, grid=None)

    def test_kept_without_gradients(self, static: StaticKernel) -> None:
        with torch.no_grad():
            first = static()
            assert static() is first
        assert static() is not first and static().requires_grad
        static.requires_grad_(False)
        assert static() is static()

    @pytest.mark.parametrize("change", ["update", "load", "cast", "replace"])
    def test_a_changed_parameter_counts(self, static: StaticKernel, change: str) -> None:
        with torch.no_grad():
            before = static()
            if change == "update":
                static.delta.add_(1.0)
            elif change == "load":
                static.load_state_dict({name: value + 1 for name, value in static.state_dict().items()})
            elif change == "cast":
                static.double()
            else:
                static.delta = torch.nn.Parameter(static.delta + 1)
            after = static()
        assert after.dtype != before.dtype or not torch.equal(after, before)

    def test_inference_mode_leaves_nothing_behind(self, static: StaticKernel) -> None:
        static.requires_grad_(False)
        with torch.inference_mode():
            static()
        x = torch.randn(3, 9, dtype=torch.complex64, requires_grad=True)
        (static() * x).abs().sum().backward()
        assert x.grad is not None

    def test_copies_and_checkpoints_do_not_hold_it(self, static: StaticKernel) -> None:
        with torch.no_grad():
            static()
            assert copy.deepcopy(static)._kept is None
            assert not any("kept" in name for name in static.state_dict())

    def test_function_transforms(self, static: StaticKernel) -> None:
        weights = {name: torch.stack((value, value + 1)).detach() for name, value in static.state_dict().items()}
        with torch.no_grad():
            both = torch.vmap(lambda w: torch.func.functional_call(static, w, ()))(weights)
            static.load_state_dict({name: value[1] for name, value in weights.items()})
            assert torch.allclose(both[1], static(), atol=1e-5)
