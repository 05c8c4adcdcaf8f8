"""The kernels of images, on a GPU or in Triton's interpreter: output and every gradient against the torch path."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from helpers import assert_close, relative_error
from kernel_checks import DEVICE, pooled

from orchid.nn.mixer2d import OrchidMixer2d
from orchid.nn.projections import to_channels

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels.around_fft import products
from orchid.ops.kernels.images import around_fft
from orchid.ops.kernels.images import operator as images
from orchid.ops.kernels.images.dense import path as dense

pytestmark = pytest.mark.usefixtures("few_programs")

CONDITIONINGS = ["phase", "cross", "static"]


def build(height: int, width: int, channels: int = 3, **options: object) -> OrchidMixer2d:
    torch.manual_seed(0)
    mixer = OrchidMixer2d(channels, height, width, backend="triton", **options)
    torch.nn.init.normal_(mixer.short_bias)
    return mixer.to(DEVICE)


def results(mixer: OrchidMixer2d, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the output and the gradients of a fixed random sum of it."""
    leaves = {"x": x.detach().requires_grad_(), **{k: p for k, p in mixer.named_parameters() if p.numel()}}
    y = mixer(leaves["x"])
    weight = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    grads = torch.autograd.grad((y * weight.to(y)).sum(), list(leaves.values()))
    return {"y": y, **dict(zip(leaves, grads, strict=True))}


def exact(mixer: OrchidMixer2d, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the same in float64 by the torch path, which is tested against the definition."""
    layer = copy.deepcopy(mixer).double().cpu()
    layer.backend = "torch"
    return results(layer, x.double().cpu())


@pytest.mark.parametrize("conditioning", CONDITIONINGS)
@pytest.mark.parametrize(("height", "width"), [(4, 6), (6, 5), (8, 8), (1, 4)], ids=str)
def test_output_and_every_gradient(height: int, width: int, conditioning: str) -> None:
    mixer = build(height, width, conditioning=conditioning)
    x = torch.randn(2, height, width, 3, device=DEVICE)
    ours = results(mixer, x)
    for name, expected in exact(mixer, x).items():
        assert_close(name, ours[name].cpu(), expected.float(), 1e-5)


def test_five_taps_and_more_than_one_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks, chunks of channels, groups of samples, several blocks a program."""
    for name, value in {"BLOCK": 64, "GRAD_BLOCK": 16, "ELEMENTS": 2 * 3 * 30, "PROGRAMS": 4}.items():
        monkeypatch.setattr(around_fft, name, value)
    mixer = build(5, 6, kernel_size=5, conditioning="cross")
    x = torch.randn(3, 5, 6, 3, device=DEVICE)
    ours = results(mixer, x)
    for name, expected in exact(mixer, x).items():
        assert_close(name, ours[name].cpu(), expected.float(), 1e-5)


def test_batches_that_fall_into_no_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several samples a program, in groups of which the last has fewer."""
    for name, value in {"GRAD_BLOCK": 32, "PROGRAMS": 4}.items():
        monkeypatch.setattr(around_fft, name, value)
    monkeypatch.setattr(products, "PROGRAMS", 6)
    mixer, launched = build(3, 4, conditioning="cross"), []
    x = torch.randn(13, 3, 4, 3, device=DEVICE)
    kernel = around_fft.image_mix_grad_kernel

    class Seen:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            launched.append(grid)
            return kernel[grid]

    monkeypatch.setattr(around_fft, "image_mix_grad_kernel", Seen())
    ours = results(mixer, x)
    assert launched == [(1, 3, 2)]  # groups of seven: three and a half turns of two samples
    for name, expected in exact(mixer, x).items():
        assert_close(name, ours[name].cpu(), expected.float(), 1e-5)


def assert_at_most_twice_as_far_off(mixer: OrchidMixer2d, x: torch.Tensor) -> None:
    """Compare errors with those of the torch path; of small tensors all together, for the ratio of two needs many."""
    plain = copy.deepcopy(mixer)
    plain.backend = "torch"
    expected = exact(mixer, x)
    ours, torchs = (pooled(results(layer, x), expected) for layer in (mixer, plain))
    for name, value in pooled(expected, expected).items():
        error, allowed = relative_error(ours[name], value), relative_error(torchs[name], value)
        assert error <= 2 * allowed, f"{name}: {error:.2e}, torch {allowed:.2e}"


@pytest.mark.parametrize("conditioning", ["phase", "cross"])
def test_half_precision(conditioning: str) -> None:
    mixer = build(8, 8, 8, conditioning=conditioning).bfloat16()
    assert_at_most_twice_as_far_off(mixer, torch.randn(4, 8, 8, 8, device=DEVICE).bfloat16())


def test_shifts_of_either_axis_pass_through() -> None:
    mixer, x = build(4, 8), torch.randn(2, 4, 8, 3, device=DEVICE)
    assert_close("y", mixer(x.roll((1, 3), (1, 2))).cpu(), mixer(x).roll((1, 3), (1, 2)).cpu(), 2e-6)


def test_zeros_have_finite_gradients_and_bits_repeat() -> None:
    mixer, x = build(4, 4), torch.zeros(2, 4, 4, 3, device=DEVICE)
    mixer.in_proj.bias.data.zero_()
    first, second = results(mixer, x), results(mixer, x)
    for name, value in first.items():
        assert torch.isfinite(value).all(), name
        assert torch.equal(value, second[name]), name


def test_operator_and_who_is_served() -> None:
    mixer, x = build(4, 4), torch.randn(2, 4, 4, 3, device=DEVICE)
    p = to_channels(mixer.in_proj, x.flatten(1, 2), biased=False).detach().requires_grad_()
    static = torch.view_as_real(mixer.static_spectrum()).detach()
    parameters = (mixer.in_proj.bias, mixer.short_weight, mixer.short_bias, mixer.spatial, mixer.spectral)
    torch.library.opcheck(images._mix.op, (p, *parameters, static, 4, 4))
    given = (torch.randn(2, 3, 16, device=DEVICE), p, *parameters, static, 4, 4)
    torch.library.opcheck(images._mix_backward.op, [t.detach() if torch.is_tensor(t) else t for t in given])
    with pytest.raises(ValueError, match="float64"):
        mixer.double()(x.double())
    with pytest.raises(ValueError, match="kernel_size 3 or 5"):
        OrchidMixer2d(3, 8, 8, kernel_size=7, backend="triton")


def test_what_the_kernels_do_not_serve_is_no_silent_answer() -> None:
    mixer, x = OrchidMixer2d(2, 4, 6, backend="triton").to(DEVICE), torch.randn(1, 4, 6, 2, device=DEVICE)
    mask = torch.ones(1, 4, 6, dtype=torch.bool, device=DEVICE)
    for given in ({"mask": mask}, {"context": x}, {"context_mask": mask}):
        with pytest.raises(ValueError, match="the kernels do not support masks, contexts or smaller images"):
            mixer(x, **given)
    with pytest.raises(ValueError, match="the kernels do not support masks, contexts or smaller images"):
        mixer(x[:, :3])


class TestSmall:
    """Small images of bfloat16, in batches: products with matrices."""

    @pytest.fixture(autouse=True)
    def served(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """See to it that a test in here goes where it should, forward and backward."""
        called = set()
        for name in ("write", "gradients"):
            original = getattr(dense, name)

            def seen(*given: object, name: str = name, original: Callable[..., object] = original) -> object:
                called.add(name)
                return original(*given)

            monkeypatch.setattr(dense, name, seen)
        yield
        assert called == {"write", "gradients"}

    @pytest.mark.parametrize(
        ("height", "width", "batch", "options"),
        [
            (8, 8, 26, {}),
            (4, 4, 70, {"conditioning": "static"}),
            (3, 5, 25, {}),
            (4, 3, 130, {"kernel_size": 5}),
            (1, 4, 24, {}),
            # what ptxas got wrong (dense/matrices.py), which an interpreter does not show
            *(((4, 3, 24, {}), (6, 5, 24, {}), (7, 7, 24, {})) if DEVICE == "cuda" else ()),
        ],
        ids=str,
    )
    def test_at_most_twice_as_far_off(
        self, height: int, width: int, batch: int, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Sizes that are no power of two, samples that do not fill a tile, several tiles a program, five taps."""
        monkeypatch.setattr(dense, "PROGRAMS", 6)
        mixer = build(height, width, 3, **options).bfloat16()
        assert_at_most_twice_as_far_off(mixer, torch.randn(batch, height, width, 3, device=DEVICE).bfloat16())

    @pytest.mark.parametrize("still", [1, 2])
    def test_images_that_repeat_themselves(self, still: int) -> None:
        """Their spectra have bins of nothing but rounding, which has no direction for gradients to follow."""
        mixer = build(8, 8, 8).bfloat16()
        x = torch.randn(24, 8, 8, 8, device=DEVICE).bfloat16()
        assert_at_most_twice_as_far_off(mixer, x.narrow(still, 0, 1).expand_as(x).contiguous())

    def test_taps_keep_their_precision_under_autocast(self) -> None:
        """The torch path rounds them to bfloat16 there; against float64 ours are no further off than it is."""
        mixer, x = build(4, 4), torch.randn(30, 4, 4, 3, device=DEVICE)
        plain = copy.deepcopy(mixer)
        plain.backend = "torch"
        expected = exact(mixer, x)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            ours, torchs = (pooled(results(layer, x), expected) for layer in (mixer, plain))
        for name, value in pooled(expected, expected).items():
            assert relative_error(ours[name], value) <= 1.2 * relative_error(torchs[name], value), name

    def test_shifts_zeros_and_the_same_bits(self) -> None:
        mixer, x = build(4, 4).bfloat16(), torch.randn(25, 4, 4, 3, device=DEVICE).bfloat16()
        shifted = mixer(x.roll((1, 3), (1, 2)))
        assert relative_error(shifted, mixer(x).roll((1, 3), (1, 2))) < 4e-3  # of bfloat16
        first, second = results(mixer, x), results(mixer, x)
        assert all(torch.equal(value, second[name]) for name, value in first.items())
        mixer.in_proj.bias.data.zero_()
        mixer.short_bias.data.zero_()
        assert all(torch.isfinite(value).all() for value in results(mixer, 0 * x).values())

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of what is not finite
    def test_what_is_not_finite_or_large_stays_in_its_sample(self) -> None:
        mixer, x = build(4, 4).bfloat16(), torch.randn(25, 4, 4, 3, device=DEVICE).bfloat16()
        clean = results(mixer, x)
        spoiled = x.clone()
        spoiled[3, 1, 2, 0], spoiled[5] = torch.nan, 1e4 * spoiled[5]
        others = [sample for sample in range(25) if sample not in (3, 5)]
        found = results(mixer, spoiled)
        assert found["y"][3].isnan().any() and torch.isfinite(found["y"][5]).all()
        for name in ("y", "x"):
            assert torch.equal(found[name][others], clean[name][others]), name

    def test_strided_streams(self) -> None:
        """Streams in the order of samples, as a projection of another's may have them."""
        mixer = build(4, 4).bfloat16()
        static = mixer.static_spectrum().detach()
        parameters = (mixer.in_proj.bias, mixer.short_weight, mixer.short_bias, mixer.spatial, mixer.spectral)
        p = torch.randn(25, 9, 16, device=DEVICE).bfloat16()
        grads = []
        for given in (p, p.transpose(0, 1).contiguous().transpose(0, 1), torch.stack((p, p), dim=3)[..., 0]):
            leaf = given.detach().requires_grad_()
            y = images.fused_image_mix(leaf, *parameters, static, (4, 4))
            grads.append((y, *torch.autograd.grad(y.float().square().sum(), leaf)))
        for other in grads[1:]:
            assert all(map(torch.equal, grads[0], other))

    def test_operator(self) -> None:
        mixer = build(4, 4).bfloat16()
        p = torch.randn(25, 9, 16, device=DEVICE).bfloat16().requires_grad_()
        static = torch.view_as_real(mixer.static_spectrum()).detach()
        parameters = (mixer.in_proj.bias, mixer.short_weight, mixer.short_bias, mixer.spatial, mixer.spectral)
        torch.library.opcheck(images._mix.op, (p, *parameters, static, 4, 4))
        given = (torch.randn(25, 3, 16, device=DEVICE).bfloat16(), p, *parameters, static, 4, 4)
        torch.library.opcheck(images._mix_backward.op, [t.detach() if torch.is_tensor(t) else t for t in given])
        images.fused_image_mix(p, *parameters, torch.view_as_complex(static), (4, 4)).sum().backward()
