"""The DCT in kernels, by the DFT of rows that are followed by themselves backwards."""

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE, assert_at_most_twice_as_far_off, build, check, in_chunks

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels.around_fft import path as around_fft
from orchid.ops.kernels.around_fft import products

pytestmark = pytest.mark.usefixtures("few_programs")


def test_masks_and_contexts() -> None:
    mask = torch.rand(2, 12, device=DEVICE) > 0.3
    x, context = torch.randn(2, 12, 2, device=DEVICE), torch.randn(2, 9, 2, device=DEVICE)
    check(build(transform="dct"), x, mask)
    check(build(transform="dct", conditioning="cross"), x, context=context)


def test_frozen() -> None:
    mixer, x = build(transform="dct"), torch.randn(2, 16, 2, device=DEVICE)
    expected = mixer(x)
    assert relative_error(mixer.freeze()(x), expected) < 1e-6


def test_chunks_groups_and_an_odd_number_of_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    in_chunks(monkeypatch, around_fft, 2 * 3 * 80)
    monkeypatch.setattr(products, "BIN_GRAD_BLOCK", 16)
    check(build(3, 40, transform="dct"), torch.randn(3, 37, 3, device=DEVICE))


def test_half_precision() -> None:
    width = 4 if DEVICE == "cpu" else 32
    mixer = build(width, 64, transform="dct").bfloat16()
    assert_at_most_twice_as_far_off(mixer, torch.randn(4, 64, width, device=DEVICE).bfloat16())


def test_zeros() -> None:
    mixer = build(transform="dct")
    mixer.in_proj.bias.data.zero_()
    y = mixer(torch.zeros(1, 16, 2, device=DEVICE))
    grads = torch.autograd.grad(y.sum(), list(mixer.parameters()))
    assert all(torch.isfinite(t).all() for t in (y, *grads))
