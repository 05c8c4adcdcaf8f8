import pytest
import torch
from helpers import assert_close

from orchid.ops import reference
from orchid.ops.depthwise import depthwise_conv_bins, depthwise_conv_time


@pytest.mark.parametrize("width", [1, 3, 5])
@pytest.mark.parametrize(("length", "period"), [(1, 1), (2, 2), (2, 3), (7, 7), (6, 7), (3, 9)])
@pytest.mark.parametrize("padding", ["causal", "same", "circular"])
def test_time(padding: str, length: int, period: int, width: int) -> None:
    x = torch.randn(2, 4, length, dtype=torch.float64)
    taps, bias = torch.randn(4, width, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    actual = depthwise_conv_time(x, taps, bias, padding=padding, period=period)
    full = reference.short_convolution(reference.zero_pad(x, period), taps, bias, padding=padding)
    assert_close("y", actual, full[..., :length])


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("bins", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 3, 5])
def test_bins(width: int, bins: int, dtype: torch.dtype) -> None:
    z, taps = torch.randn(2, 4, bins, dtype=dtype), torch.randn(4, width, dtype=torch.float64)
    assert_close("w", depthwise_conv_bins(z, taps), reference.spectral_convolution_over_bins(z, taps))


def test_gradients() -> None:
    z = torch.randn(2, 2, 4, dtype=torch.complex128, requires_grad=True)
    x = torch.randn(2, 2, 4, dtype=torch.float64, requires_grad=True)
    taps = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(depthwise_conv_bins, (z, taps))
    circular = lambda x, taps: depthwise_conv_time(x, taps, padding="circular", period=5)  # noqa: E731
    assert torch.autograd.gradcheck(circular, (x, taps))
