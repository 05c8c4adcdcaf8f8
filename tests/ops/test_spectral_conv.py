import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close

from orchid.ops import reference
from orchid.ops.spectral_conv import SIGMAS, cross_spectrum, on_magnitude, phase_spectrum, spectral_conv
from orchid.ops.transforms import get_transform

LENGTHS = [1, 2, 3, 63, 64, 127, 129, 1000]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("boundary", ["circular", "linear"])
@pytest.mark.parametrize("kind", ["dft", "dct"])
@pytest.mark.parametrize("length", LENGTHS)
def test_output_and_gradients_against_the_reference(length: int, kind: str, boundary: str, dtype: torch.dtype) -> None:
    batch, channels = (1, 2) if length > 500 else (2, 3)
    n = length if boundary == "circular" else 2 * length
    transform = get_transform(kind)
    spectral = torch.complex128 if transform.complex else torch.float64
    storage = torch.randn(batch, length, channels, dtype=torch.float64)
    h_f = torch.randn(batch, channels, transform.bins(n), dtype=spectral)
    upstream = torch.randn(batch, channels, length, dtype=torch.float64)

    def run(function, cast: torch.dtype) -> list[torch.Tensor]:
        x = storage.to(cast).transpose(1, 2).requires_grad_()  # strided on purpose
        h = h_f.to(cast.to_complex() if transform.complex else cast).requires_grad_()
        y = function(x, h)
        return [y, *torch.autograd.grad(y, (x, h), upstream.to(cast))]

    fast = run(lambda x, h: spectral_conv(x, transform.real_edges(h, n), n=n, transform=transform), dtype)
    slow = run(lambda x, h: reference.data_dependent_convolution(x, h, kind=kind, boundary=boundary), torch.float64)
    for name, actual, expected in zip(("y", "grad x", "grad h_f"), fast, slow, strict=True):
        assert_close(name, actual, expected)


@pytest.mark.parametrize("length", [1, 5, 64])
def test_linear_boundary_equals_conv1d(length: int) -> None:
    """A two-sided kernel, applied by torch's own convolution."""
    transform, n = get_transform("dft"), 2 * length
    x, h = torch.randn(1, 3, length, dtype=torch.float64), torch.randn(3, n, dtype=torch.float64)
    by_lag = torch.cat((h[:, length + 1 :], h[:, :length]), dim=1)
    expected = F.conv1d(x, by_lag.flip(-1)[:, None], padding=length - 1, groups=3)
    assert_close("y", spectral_conv(x, transform.kernel_spectrum(h), n=n, transform=transform), expected)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_sigma_acts_on_the_magnitude(sigma: str, dtype: torch.dtype) -> None:
    z = torch.randn(50, dtype=dtype) * 2
    assert_close("sigma", on_magnitude(sigma, z), reference.sigma(sigma, z))
    assert torch.autograd.gradcheck(lambda z: on_magnitude(sigma, z), z.requires_grad_())


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_sigma_at_zero(sigma: str, dtype: torch.dtype) -> None:
    z = torch.zeros(3, dtype=dtype, requires_grad=True)
    y = on_magnitude(sigma, z)
    y.abs().sum().backward()
    assert torch.equal(y, torch.zeros_like(y))
    assert torch.isfinite(torch.view_as_real(z.grad) if z.is_complex() else z.grad).all()


@pytest.mark.parametrize("kind", ["dft", "dct"])
def test_cross_with_equal_mappings_is_the_squared_magnitude(kind: str) -> None:
    """The remark on Type II: with k = q = g it is |g|^2."""
    g, transform = torch.randn(2, 3, 11, dtype=torch.float64), get_transform(kind)
    cross = cross_spectrum(g, g, n=11, transform=transform, norm="ortho", sigma="identity")
    squared = reference.phase_conditioning(g, [], [], n=11, kind=kind, squared=True)
    assert_close("cross", cross.real, squared)
    assert_close("phase^2", phase_spectrum(g, n=11, transform=transform, norm="ortho") ** 2, squared)
