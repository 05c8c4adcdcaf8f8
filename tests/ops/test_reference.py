"""The definitions themselves, against sums written out and against torch's own convolution."""

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close

from orchid.ops import reference

LENGTHS = [1, 2, 3, 8, 13]


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("n", LENGTHS)
def test_circular_convolution_is_the_written_sum(n: int) -> None:
    h, x = draw(n), draw(n)
    expected = torch.stack([sum(h[(t - s) % n] * x[s] for s in range(n)) for t in range(n)])
    assert_close("circular", reference.circular_convolution(h, x), expected)


@pytest.mark.parametrize("n", LENGTHS)
def test_cross_correlation_is_the_written_sum(n: int) -> None:
    k, q = draw(n), draw(n)
    expected = torch.stack([sum(k[s] * q[(t + s) % n] for s in range(n)) for t in range(n)])
    assert_close("cross-correlation", reference.cross_correlation(k, q), expected)


@pytest.mark.parametrize("n", LENGTHS)
def test_linear_convolution_equals_conv1d(n: int) -> None:
    h, x = draw(2, 3, 2 * n), draw(2, 3, n)
    by_lag = torch.cat((h[..., n + 1 :], h[..., :n]), dim=-1)  # lags -(n - 1) ... n - 1
    rows = F.conv1d(x.reshape(1, 6, n), by_lag.reshape(6, 1, -1).flip(-1), padding=n - 1, groups=6)
    assert_close("linear", reference.linear_convolution(h, x), rows.reshape(2, 3, n))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("kind", ["dft", "dct"])
def test_kernel_and_spectrum_are_inverse(n: int, kind: str) -> None:
    h = draw(2, n)
    assert_close("kernel", reference.kernel_from_spectrum(reference.spectrum_from_kernel(h, kind), n, kind), h)


@pytest.mark.parametrize("n", LENGTHS)
def test_cross_correlation_theorem(n: int) -> None:
    """F(k star q) = conj(F k) F q: what makes Type II cheap (section 3.2)."""
    k, q = draw(n), draw(n)
    spectrum = reference.transform(k, "dft", "backward").conj() * reference.transform(q, "dft", "backward")
    assert_close("h", reference.kernel_from_spectrum(spectrum, n, "dft"), reference.cross_correlation(k, q))


@pytest.mark.parametrize("n", LENGTHS)
def test_dct_is_orthonormal(n: int) -> None:
    matrix = reference.dct_matrix(n)
    assert_close("C C^T", matrix @ matrix.T, torch.eye(n, dtype=torch.float64))


@pytest.mark.parametrize("kind", ["dft", "dct"])
def test_delta_tap_is_a_constant_spectrum(kind: str) -> None:
    x = draw(2, 3, 9)
    h_f = torch.full((2, 3, 5 if kind == "dft" else 9), 1.0, dtype=torch.complex128 if kind == "dft" else torch.float64)
    assert_close("y", reference.data_dependent_convolution(x, h_f, kind=kind), x)


def test_gated_chain_of_two_and_a_half() -> None:
    """Order 2 written out: s3 * (h2 conv (s2 * (h1 conv (s1 * v))))."""
    v, s1, s2, s3, h1, h2 = draw(6, 1, 1, 8)
    spectra = [lambda u, h=h: reference.spectrum_from_kernel(h, "dft") for h in (h1, h2)]
    expected = s3 * reference.circular_convolution(h2, s2 * reference.circular_convolution(h1, s1 * v))
    assert_close("chain", reference.gated_chain(v, [s1, s2, s3], v, spectra), expected)


def test_block_diagonal_product_is_blockwise() -> None:
    x, weight, bias = draw(5, 6), draw(2, 4, 3), draw(8)
    expected = torch.cat((x[:, :3] @ weight[0].T, x[:, 3:] @ weight[1].T), dim=1) + bias
    assert_close("product", reference.block_diagonal_product(x, weight, bias), expected)
