"""The operator in two dimensions: its definition, its symmetry, its gradients."""

import copy
import itertools
import warnings
from pathlib import Path

import pytest
import torch
from helpers import relative_error
from torch import Tensor

from orchid.models.vit import OrchidViT
from orchid.nn.mixer2d import OrchidMixer2d
from orchid.nn.projections import to_channels

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
    spectra = mixer.spectrum(to_channels(mixer.in_proj, x.flatten(1, 2), 3).unflatten(2, (4, 4)))
    assert relative_error(spectra[0], spectra[1]) > 0.05


def test_half_precision_and_sizes() -> None:
    mixer = OrchidMixer2d(8, 8, 8)
    x = torch.randn(2, 8, 8, 8)
    assert relative_error(mixer.bfloat16()(x.bfloat16()).float(), mixer.float()(x)) < 0.05


def test_in_the_vit() -> None:
    model = OrchidViT(16, 4, num_classes=3, d_model=16, depth=2, mixer="orchid-2d", options={"conditioning": "cross"})
    model(torch.randn(2, 3, 16, 16)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    block, x, mask = model.blocks[0].eval(), torch.randn(2, 16, 16), torch.rand(2, 16) > 0.3
    assert torch.equal(block(x, mask)[mask], block(x.masked_fill(~mask[..., None], torch.nan), mask)[mask])


CONDITIONINGS = ["phase", "cross", "static"]


@pytest.mark.parametrize("conditioning", CONDITIONINGS)
def test_what_stands_at_masked_pixels_reaches_nothing(conditioning: str) -> None:
    mixer, mask = build(4, 6, conditioning=conditioning), torch.rand(3, 4, 6) > 0.4
    mask[0], mask[1] = False, True
    x = torch.randn(3, 4, 6, 3, dtype=torch.float64)
    results = []
    for fill in (0.0, torch.nan):
        given = x.masked_fill(~mask[..., None], fill).requires_grad_()
        y = mixer(given, mask)[mask]
        grads = torch.autograd.grad(y.square().sum(), [given, *(p for p in mixer.parameters() if p.numel())])
        results.append([y, grads[0][mask], *grads[1:]])
    assert all(torch.equal(a, b) and torch.isfinite(a).all() for a, b in zip(*results, strict=True))
    torch.testing.assert_close(mixer(x, mask)[1], mixer(x[1:2])[0])


@pytest.mark.parametrize("conditioning", CONDITIONINGS)
def test_a_smaller_image_is_one_whose_rest_is_masked(conditioning: str) -> None:
    mixer, x = build(5, 6, conditioning=conditioning), torch.randn(2, 5, 6, 3, dtype=torch.float64)
    mask = torch.zeros(2, 5, 6, dtype=torch.bool)
    mask[:, :3, :4] = True
    small = mixer(x[:, :3, :4])
    assert small.shape == (2, 3, 4, 3)
    torch.testing.assert_close(small, mixer(x, mask)[:, :3, :4])
    torch.testing.assert_close(small, mixer(x[:, :3, :4], torch.ones(2, 3, 4, dtype=torch.bool)))


@pytest.mark.parametrize("conditioning", CONDITIONINGS)
@pytest.mark.parametrize("size", [(4, 6), (3, 5)])
def test_the_mixing_matrix_reproduces_the_layer(size: tuple[int, int], conditioning: str) -> None:
    mixer, x = build(4, 6, conditioning=conditioning), torch.randn(2, *size, 3, dtype=torch.float64)
    mask = torch.rand(2, *size) > 0.3
    mixed = torch.stack(
        [
            (mixer.mixing_matrix(x, mask, channel=d) @ mixer.values(x, mask)[..., d].flatten(1)[..., None])[..., 0]
            for d in range(3)
        ],
        dim=-1,
    )
    expected = mixer.out_proj(mixed).unflatten(1, size)
    torch.testing.assert_close(mixer(x, mask)[mask], expected[mask])


def test_the_kernel_is_what_is_convolved_with() -> None:
    mixer, x = build(4, 5), torch.randn(2, 4, 5, 3, dtype=torch.float64)
    kernel, matrix = mixer.kernel(x), mixer.mixing_matrix(x, channel=1)
    assert kernel.shape == (2, 3, 4, 5)
    streams = mixer._streams(x)
    for target, source in itertools.product(range(20), repeat=2):
        lag = (target // 5 - source // 5) % 4, (target % 5 - source % 5) % 5
        gates = streams.s2[:, 1].flatten(1)[:, target] * streams.s1[:, 1].flatten(1)[:, source]
        torch.testing.assert_close(matrix[:, target, source], gates * kernel[:, 1, lag[0], lag[1]])
    assert mixer.kernel(torch.zeros_like(x)).shape == (2, 3, 4, 5)
    assert build(4, 5, conditioning="static").kernel(x).shape == (2, 3, 4, 5)


@pytest.mark.parametrize("conditioning", ["phase", "cross"])
def test_context(conditioning: str) -> None:
    mixer, x = build(4, 6, conditioning=conditioning), torch.randn(2, 4, 6, 3, dtype=torch.float64)
    torch.testing.assert_close(mixer(x, context=x), mixer(x))
    other = torch.randn(2, 2, 3, 3, dtype=torch.float64)
    y = mixer(x, context=other)
    assert relative_error(y, mixer(x)) > 1e-3
    mask = torch.ones(2, 2, 3, dtype=torch.bool)
    torch.testing.assert_close(mixer(x, context=other, context_mask=mask), y)
    padded = torch.nn.functional.pad(other, (0, 0, 0, 2, 0, 1), value=torch.nan)
    torch.testing.assert_close(mixer(x, context=padded, context_mask=~padded[..., 0].isnan()), y)


def test_resampled() -> None:
    mixer, x = build(4, 6, kernel_size=3).requires_grad_(False), torch.randn(2, 8, 12, 3, dtype=torch.float64)
    layer = mixer.resample(8, 12)
    assert layer(x).shape == x.shape and not any(p.requires_grad for p in layer.parameters())
    assert torch.equal(mixer.resample(4, 6)(x[:, :4, :6]), mixer(x[:, :4, :6]))


def test_a_resampled_kernel_keeps_its_low_frequencies() -> None:
    """In cycles an image: the same integral by sums of a finer grid."""
    mixer = build(32, 32)
    coarse, fine = (layer.static_spectrum()[:, :2, :2] for layer in (mixer, mixer.resample(64, 64)))
    assert relative_error(fine, coarse) < 0.05


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": torch.zeros(2, 5, 6, 3)}, r"x is an image of 5 x 6, larger than height=4 x width=6"),
        ({"x": torch.zeros(2, 4, 6, 4)}, r"x has shape \(2, 4, 6, 4\); expected \(batch, height, width, d_model=3\)"),
        ({"x": torch.zeros(0, 4, 6, 3)}, r"at least 1"),
        ({"x": torch.zeros(2, 4, 6, 3).double()}, r"x has dtype torch.float64; expected torch.float32"),
        ({"mask": torch.ones(2, 4, 5, dtype=torch.bool)}, r"mask has shape \(2, 4, 5\); expected \(2, 4, 6\)"),
        ({"mask": torch.ones(2, 4, 6)}, r"mask has dtype torch.float32; expected torch.bool"),
        ({"context": torch.zeros(1, 4, 6, 3)}, r"context has batch 1; expected that of x, 2"),
        ({"context_mask": torch.ones(2, 4, 6, dtype=torch.bool)}, r"context_mask was given without context"),
    ],
)
def test_bad_input(inputs: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OrchidMixer2d(3, 4, 6)(**{"x": torch.zeros(2, 4, 6, 3), **inputs})
    with pytest.raises(ValueError, match="conditioning='static' has no kernel to condition"):
        OrchidMixer2d(3, 4, 6, conditioning="static")(torch.zeros(2, 4, 6, 3), context=torch.zeros(2, 4, 6, 3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled() -> None:
    mixer, x = OrchidMixer2d(3, 4, 6, conditioning="cross"), torch.randn(2, 4, 6, 3)
    assert relative_error(torch.compile(mixer, fullgraph=True)(x), mixer(x)) < 1e-5


@pytest.mark.parametrize("conditioning", CONDITIONINGS)
def test_onnx(conditioning: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="needs the export extra")
    mixer, x = OrchidMixer2d(3, 4, 6, conditioning=conditioning).eval(), torch.randn(2, 4, 6, 3)
    file = tmp_path / "mixer.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own
        torch.onnx.export(mixer, (x,), file, dynamo=True, verbose=False)
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert relative_error(torch.from_numpy(y), mixer(x).detach()) < 1e-5


@pytest.mark.parametrize("conditioning", ["phase", "cross"])
@pytest.mark.parametrize("axis", [1, 2], ids=["rows", "columns"])
def test_mirror_images(axis: int, conditioning: str) -> None:
    """They are mixed as the images, by mirrored taps; those over bins along their rows either way.

    |T| of a real image does not change when both axes are mirrored, and half of the columns of bins stand for all.
    """
    mixer, x = OrchidMixer2d(3, 6, 5, conditioning=conditioning).double(), torch.randn(2, 6, 5, 3).double()
    torch.nn.init.zeros_(mixer.filter.output)  # leaves the static kernel its tap at lag 0
    mirrored = copy.deepcopy(mixer)
    with torch.no_grad():
        for taps in (mirrored.short_weight, mirrored.spatial):
            taps.copy_(taps.flip(axis - 3))
        mirrored.spectral.copy_(mirrored.spectral.flip(-2))
    assert relative_error(mirrored(x.flip(axis)).flip(axis), mixer(x)) < 1e-12
