"""The operator in two dimensions: its definition, its symmetry, its gradients."""

import itertools

import pytest
import torch
from helpers import relative_error
from torch import Tensor

from orchid.models.vit import OrchidViT
from orchid.nn.mixer2d import OrchidMixer2d

SIZES = [(4, 6), (5, 3), (6, 5), (3, 3)]


def build(height: int, width: int, **options: object) -> OrchidMixer2d:
    mixer = OrchidMixer2d(3, height, width, **options).double()
    torch.nn.init.normal_(mixer.short_bias)
    return mixer


def waves(height: int, width: int) -> Tensor:
    """Return exp(-2 pi i (k s / H + m t / W)), (k, m, s, t), all bins of the full spectrum."""
    k, m, s, t = (torch.arange(n, dtype=torch.float64) for n in (height, width, height, width))
    phase = k[:, None, None, None] * s[:, None] / height + (m[:, None] * t / width)[None, :, None, :]
    return torch.polar(torch.ones_like(phase), -2 * torch.pi * phase)


def convolved(x: Tensor, taps: Tensor) -> Tensor:
    """Return the centred convolution on the torus, summed up tap by tap: x (B, C, H, W), taps (C, K, K)."""
    reach, total = taps.shape[-1] // 2, torch.zeros_like(x)
    for i, j in itertools.product(range(taps.shape[-1]), repeat=2):
        total = total + taps[:, i, j, None, None] * x.roll((reach - i, reach - j), (2, 3))
    return total


def reference(mixer: OrchidMixer2d, x: Tensor) -> Tensor:
    """Return the mixer's output by its definition, with sums in place of transforms and of convolutions."""
    height, width, bins = mixer.height, mixer.width, mixer.width // 2 + 1
    wave, root = waves(height, width), (height * width) ** 0.5
    projected = torch.einsum("oi,bhwi->bohw", mixer.in_proj.weight, x) + mixer.in_proj.bias[:, None, None]
    short = convolved(projected, mixer.short_weight) + mixer.short_bias[:, None, None]
    v, s1, s2 = short.chunk(3, dim=1)
    h_f = torch.einsum("klst,dst->dkl", wave, mixer.filter().to(wave.dtype)) + mixer.delta[:, None, None]
    h_f = h_f[:, :, :bins].expand(len(x), -1, -1, -1)
    sides = [
        torch.einsum("klst,bdst->bdkl", wave, convolved(projected[:, : mixer.d_model], taps).to(wave.dtype)) / root
        for taps in mixer.spatial
    ]
    if sides:
        met = (sides[0].abs() + 0j if len(sides) == 1 else sides[0].conj() * sides[1])[..., :bins]
        reach = mixer.spectral.shape[-1] // 2
        for i, j in itertools.product(range(mixer.spectral.shape[-1]), repeat=2):
            moved = torch.zeros_like(met)
            for column in range(bins):
                if 0 <= column + j - reach < bins:
                    moved[..., column] = met.roll(reach - i, 2)[..., column + j - reach]
            h_f = h_f + mixer.spectral[:, i, j, None, None] * moved
    # the real kernel of a half spectrum: bins with a mirror image count twice
    column = torch.arange(bins)
    count = torch.where((2 * column) % width == 0, 1.0, 2.0).double()
    kernel = torch.einsum("bdkl,klst->bdst", h_f * count, wave[:, :bins].conj()).real / (height * width)
    a, y = s1 * v, torch.zeros_like(v)
    for s, t in itertools.product(range(height), range(width)):
        y = y + kernel[:, :, s, t, None, None] * a.roll((s, t), (2, 3))
    return torch.einsum("oi,bihw->bhwo", mixer.out_proj.weight, s2 * y) + mixer.out_proj.bias


@pytest.mark.parametrize("conditioning", ["phase", "cross", "static"])
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_output_and_gradients_are_the_definitions(height: int, width: int, conditioning: str) -> None:
    mixer = build(height, width, conditioning=conditioning)
    x = torch.randn(2, height, width, 3, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(2, height, width, 3, dtype=torch.float64)
    leaves = [x, *(p for p in mixer.parameters() if p.numel())]
    ours, theirs = mixer(x), reference(mixer, x)
    assert relative_error(ours, theirs) < 1e-11
    grads = [torch.autograd.grad(y, leaves, upstream) for y in (ours, theirs)]
    assert all(relative_error(a, b) < 1e-9 for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("conditioning", ["phase", "cross", "static"])
@pytest.mark.parametrize("shift", [(1, 0), (0, 1), (2, 3), (-1, 4)])
def test_shifts_of_either_axis_pass_through(shift: tuple[int, int], conditioning: str) -> None:
    mixer, x = build(4, 6, conditioning=conditioning), torch.randn(2, 4, 6, 3, dtype=torch.float64)
    moved = mixer(x.roll(shift, (1, 2)))
    assert relative_error(moved, mixer(x).roll(shift, (1, 2))) < 1e-12


def test_the_kernel_follows_the_image() -> None:
    mixer, x = build(4, 4), torch.randn(2, 4, 4, 3, dtype=torch.float64)
    spectra = mixer.spectrum(mixer.in_proj(x.flatten(1, 2))[:, :3].unflatten(2, (4, 4)))
    assert relative_error(spectra[0], spectra[1]) > 0.05


def test_half_precision_and_sizes() -> None:
    mixer = OrchidMixer2d(8, 8, 8)
    x = torch.randn(2, 8, 8, 8)
    assert relative_error(mixer.bfloat16()(x.bfloat16()).float(), mixer.float()(x)) < 0.05
    with pytest.raises(ValueError, match=r"expected \(batch, 8, 8, 8\)"):
        mixer(x[:, :4])


def test_in_the_vit() -> None:
    model = OrchidViT(16, 4, num_classes=3, d_model=16, depth=2, mixer="orchid-2d", options={"conditioning": "cross"})
    model(torch.randn(2, 3, 16, 16)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with pytest.raises(ValueError, match="takes no mask"):
        model.blocks[0](torch.zeros(1, 16, 16), torch.ones(1, 16, dtype=torch.bool))
