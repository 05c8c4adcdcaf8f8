import pytest
import torch
from helpers import assert_close

from orchid.ops import reference
from orchid.ops.transforms import TRANSFORMS, get_transform

LENGTHS = [1, 2, 3, 4, 7, 63, 64, 127, 129]
KINDS = list(TRANSFORMS)


@pytest.mark.parametrize("norm", ["ortho", "backward"])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_forward_is_the_matrix(kind: str, n: int, norm: str) -> None:
    x = torch.randn(2, 3, n, dtype=torch.float64)
    actual = get_transform(kind).forward(x, n, norm)
    assert actual.shape[-1] == get_transform(kind).bins(n)
    assert_close("T x", actual, reference.transform(x, kind, norm))


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_round_trips(kind: str, n: int) -> None:
    t, x = get_transform(kind), torch.randn(2, 3, n, dtype=torch.float64)
    assert_close("signal", t.inverse(t.forward(x, n), n), x)
    assert_close("kernel", t.kernel(t.kernel_spectrum(x), n), x)
    assert_close("multiplier", t.kernel_spectrum(x), reference.spectrum_from_kernel(x, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_shorter_and_strided_input_is_zero_padded(kind: str) -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64).transpose(1, 2)
    assert_close("T x", get_transform(kind).forward(x, 9), reference.transform(reference.zero_pad(x, 9), kind))


@pytest.mark.parametrize("n", [1, 2, 5, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind: str, n: int) -> None:
    t, x = get_transform(kind), torch.randn(2, n, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: t.forward(x, n), x)
    assert torch.autograd.gradcheck(lambda x: t.inverse(t.forward(x, n), n), x)


@pytest.mark.parametrize(("n", "edges"), [(6, [0, 3]), (7, [0]), (1, [0]), (2, [0, 1])])
def test_bins_that_mirror_themselves_are_made_real(n: int, edges: list[int]) -> None:
    h_f = torch.randn(2, n // 2 + 1, dtype=torch.complex128)
    real = get_transform("dft").real_edges(h_f, n)
    expected = h_f.clone()
    expected.imag[:, edges] = 0.0
    assert torch.equal(real, expected)
    assert not torch.equal(real, h_f)


def test_unknown_transform() -> None:
    with pytest.raises(ValueError, match="transform='dst' is not one of 'dft', 'dct'"):
        get_transform("dst")
