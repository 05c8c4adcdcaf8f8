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
