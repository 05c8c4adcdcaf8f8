"""The kernels of images, on a GPU or in Triton's interpreter: output and every gradient against the torch path."""

import copy

import pytest
import torch
from helpers import assert_close, relative_error
from kernel_checks import DEVICE

from orchid.nn.mixer2d import OrchidMixer2d

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels.images import operator as images

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
        monkeypatch.setattr(images, name, value)
    mixer = build(5, 6, kernel_size=5, conditioning="cross")
    x = torch.randn(3, 5, 6, 3, device=DEVICE)
    ours = results(mixer, x)
    for name, expected in exact(mixer, x).items():
        assert_close(name, ours[name].cpu(), expected.float(), 1e-5)


@pytest.mark.parametrize("conditioning", ["phase", "cross"])
def test_half_precision(conditioning: str) -> None:
    """At most twice the torch path's error, small tensors pooled: the ratio of two random errors needs many."""
    mixer = build(8, 8, 8, conditioning=conditioning).bfloat16()
    x = torch.randn(4, 8, 8, 8, device=DEVICE).bfloat16()
    plain = copy.deepcopy(mixer)
    plain.backend = "torch"
    ours, torchs = results(mixer, x), results(plain, x)
    for name, expected in exact(mixer, x).items():
        error, allowed = relative_error(ours[name].cpu(), expected), relative_error(torchs[name].cpu(), expected)
        assert error <= 2 * allowed, f"{name}: {error:.2e}, torch {allowed:.2e}"


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
    p = mixer.in_proj(x.flatten(1, 2), biased=False).detach().requires_grad_()
    static = torch.view_as_real(mixer.static_spectrum()).detach()
    parameters = (mixer.in_proj.bias, mixer.short_weight, mixer.short_bias, mixer.spatial, mixer.spectral)
    torch.library.opcheck(images._mix.op, (p, *parameters, static, 4, 4))
    with pytest.raises(ValueError, match="float64"):
        mixer.double()(x.double())
    with pytest.raises(ValueError, match="kernel_size 3 or 5"):
        OrchidMixer2d(3, 8, 8, kernel_size=7, backend="triton")


def test_what_the_kernels_do_not_serve_is_no_silent_answer() -> None:
    mixer, x = OrchidMixer2d(2, 4, 6, backend="triton").to(DEVICE), torch.randn(1, 4, 6, 2, device=DEVICE)
    mask = torch.ones(1, 4, 6, dtype=torch.bool, device=DEVICE)
    for given in ({"mask": mask}, {"context": x}, {"context_mask": mask}):
        with pytest.raises(ValueError, match="the kernels have no masks, contexts, smaller images"):
            mixer(x, **given)
    with pytest.raises(ValueError, match="the kernels have no masks, contexts, smaller images"):
        mixer(x[:, :3])
