"""Convolutions as matrix products against those by spectra."""

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE

from orchid.ops import circulant, long_conv
from orchid.ops.circulant import circulant_conv
from orchid.ops.spectral_conv import spectral_conv
from orchid.ops.transforms import get_transform


@pytest.mark.parametrize(("length", "n"), [(16, 16), (11, 16), (9, 18), (1, 1)])
def test_output_and_gradients_are_those_of_the_spectrum(length: int, n: int) -> None:
    x = torch.randn(3, length, 4, dtype=torch.float64).transpose(1, 2).requires_grad_()
    h = torch.randn(4, n, dtype=torch.float64, requires_grad=True)
    dft, upstream = get_transform("dft"), torch.randn(3, 4, length, dtype=torch.float64)
    ours = circulant_conv(x, h)
    theirs = spectral_conv(x, dft.kernel_spectrum(h), n=n, transform=dft)
    assert relative_error(ours, theirs) < 1e-12
    for a, b in zip(*(torch.autograd.grad(y, (x, h), upstream) for y in (ours, theirs)), strict=True):
        assert relative_error(a, b) < 1e-12


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # the library's own rules
def test_forward_mode() -> None:
    x, h = torch.randn(2, 3, 6, dtype=torch.float64), torch.randn(3, 8, dtype=torch.float64)
    dx, dh = torch.randn_like(x), torch.randn_like(h)
    _, tangent = torch.func.jvp(circulant_conv, (x, h), (dx, dh))
    torch.testing.assert_close(tangent, circulant_conv(dx, h) + circulant_conv(x, dh))


def test_half_precision_rounds_operands_once() -> None:
    x, h = torch.randn(5, 8, 64).bfloat16(), torch.randn(8, 64)
    exact = circulant_conv(x.double(), h.double())
    assert circulant_conv(x, h).dtype == torch.bfloat16
    # the kernel's rounding and the result's, each uniform within half a unit of 2^-8: 2^-9 / sqrt(3) at most
    assert relative_error(circulant_conv(x, h), exact) < 2**-8


def test_gradients_are_the_same_bits_every_time() -> None:
    x, h = torch.randn(6, 4, 32), torch.randn(4, 32, requires_grad=True)
    first, second = (torch.autograd.grad(circulant_conv(x, h).square().sum(), h)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_a_linear_convolution_of_short_rows_is_the_same_product(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4, 10, dtype=torch.float64)
    kernels = torch.randn(2, 4, 12, dtype=torch.float64)
    for given in (kernels, kernels[:1]):
        expected = long_conv.long_conv(x, *given)
        with monkeypatch.context() as patch:
            patch.setattr(long_conv, "product_dtype", lambda x, n: x.dtype)  # as on a GPU in half precision
            patch.setattr(long_conv, "spectral_conv", None)
            assert relative_error(long_conv.long_conv(x, *given), expected) < 1e-12


class TestTransposed:
    """On a GPU tokens are turned into channels by a kernel."""

    @pytest.mark.parametrize("shape", [(1, 1), (70, 130), (64, 3)])
    def test_is_the_transpose(self, shape: tuple[int, int]) -> None:
        transpose = pytest.importorskip("orchid.ops.kernels.transpose", reason="needs Triton")
        x = torch.randn(shape, device=DEVICE).bfloat16()
        y = transpose.transposed(x)
        assert y.is_contiguous() and torch.equal(y, x.T)
        torch.library.opcheck(transpose.transposed.op, (x.float().requires_grad_(),))

    def test_gradients_of_tokens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("triton", reason="needs Triton")
        x, h = torch.randn(3, 10, 4, device=DEVICE), torch.randn(4, 12, device=DEVICE, requires_grad=True)
        results = []
        for turned in (False, True):
            monkeypatch.setattr(circulant, "_in_tokens", lambda x, own=turned: own and x.stride(1) == 1)
            leaf = x.clone().requires_grad_()
            y = circulant_conv(leaf.transpose(1, 2), h)
            results.append((y, *torch.autograd.grad(y.square().sum(), (leaf, h))))
        for a, b in zip(*results, strict=True):
            assert relative_error(a, b) < 1e-6
        assert results[1][1].is_contiguous()

    def test_second_derivatives(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("triton", reason="needs Triton")
        monkeypatch.setattr(circulant, "_in_tokens", lambda x: x.stride(1) == 1)
        x = torch.randn(2, 5, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
        h = torch.randn(3, 6, dtype=torch.float64, device=DEVICE, requires_grad=True)
        assert torch.autograd.gradgradcheck(lambda x, h: circulant_conv(x.transpose(1, 2), h), (x, h))
