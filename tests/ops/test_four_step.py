"""Rows of 256 to 8,192 in half precision, on a GPU or in Triton's interpreter: output and every gradient."""

from collections.abc import Iterator

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE, assert_at_most_twice_as_far_off, build, in_chunks

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels import passes
from orchid.ops.kernels.four_step import path as four_step

pytestmark = pytest.mark.usefixtures("few_programs")

# Channels: the ratio of two random errors needs many numbers; the interpreter takes its time.
WIDTH = 4 if DEVICE == "cpu" else 32


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See to it that a test in here goes where it should."""
    calls = []
    for name in ("write", "gradients", "write_plus_conv", "conv_gradients"):
        original = getattr(four_step, name)
        monkeypatch.setattr(four_step, name, lambda *given, f=original: (calls.append(f), f(*given))[1])
    yield
    assert len(calls) >= 2


@pytest.mark.parametrize(
    ("n", "options"),
    [
        (256, {}),
        (256, {"conditioning": "static"}),
        (256, {"kernel_size": 5, "short_padding": "same", "norm": "backward"}),
        (256, {"short_padding": "circular"}),
        (256, {"boundary": "linear"}),
        (1024, {}),
        (2048, {}),
        (256, {"conditioning": "cross"}),
        (256, {"conditioning": "cross", "kernel_size": 5, "short_padding": "same"}),
        (512, {"conditioning": "cross"}),
        (1024, {"conditioning": "cross"}),
    ],
    ids=str,
)
def test_against_the_reference(n: int, options: dict[str, object]) -> None:
    # the filter's gradients are nearly one number a channel, and vary most where the kernel does
    width = max(WIDTH, 8) if options.get("conditioning") == "cross" and n == 256 else WIDTH
    mixer, samples = build(width, n, **options).bfloat16(), 3 if n < 2048 else 1
    assert_at_most_twice_as_far_off(mixer, torch.randn(samples, n, width, device=DEVICE).bfloat16())


@pytest.mark.skipif(DEVICE == "cpu", reason="takes minutes in the interpreter; needs a CUDA device")
@pytest.mark.parametrize("n", [512, 2048, 4096])
@pytest.mark.parametrize("conditioning", ["phase", "cross", "static"])
def test_every_length(n: int, conditioning: str) -> None:
    mixer = build(WIDTH, n, conditioning=conditioning).bfloat16()
    assert_at_most_twice_as_far_off(mixer, torch.randn(3, n, WIDTH, device=DEVICE).bfloat16())


@pytest.mark.parametrize("padding", ["causal", "same", "circular"])
def test_masks_and_shorter_inputs(padding: str) -> None:
    mixer = build(WIDTH, 256, short_padding=padding).bfloat16()
    x = torch.randn(3, 200, WIDTH, device=DEVICE).bfloat16()
    mask = torch.rand(3, 200, device=DEVICE) > 0.3
    mask[1] = False
    assert_at_most_twice_as_far_off(mixer, x, mask)


@pytest.mark.parametrize(
    ("scale", "offset", "conditioning"),
    [
        (1.0, 300.0, "static"), (1e-6, 0.0, "static"), (1e6, 0.0, "static"), (0.0, 0.0, "static"),
        (1e-6, 0.0, "phase"), (1e6, 0.0, "phase"), (0.0, 0.0, "phase"),
        (1e-6, 0.0, "cross"), (1e6, 0.0, "cross"), (0.0, 0.0, "cross"),
    ],
)  # fmt: skip
def test_offsets_and_magnitudes(scale: float, offset: float, conditioning: str) -> None:
    mixer = build(2, 256, conditioning=conditioning).bfloat16()
    x = (torch.randn(2, 256, 2, device=DEVICE) * scale + offset).bfloat16()
    y = mixer(x)
    grads = torch.autograd.grad(y.sum(), list(mixer.parameters()))
    exact = type(mixer)(2, 256, **{**mixer._options(), "backend": "torch"}).double()
    exact.load_state_dict(mixer.state_dict())
    assert all(torch.isfinite(t).all() for t in (y, *grads))
    assert relative_error(y.cpu(), exact(x.double().cpu())) < 2e-2


def test_one_large_token() -> None:
    mixer, x = build(4, 256).bfloat16(), torch.randn(2, 256, 4, device=DEVICE)
    x[:, 7] *= 1000
    x = x.bfloat16()
    exact = type(mixer)(4, 256, **{**mixer._options(), "backend": "torch"}).double()
    exact.load_state_dict(mixer.state_dict())
    grads = torch.autograd.grad(mixer(x).float().sum(), list(mixer.parameters()))
    assert all(torch.isfinite(t).all() for t in grads)
    assert relative_error(mixer(x).cpu(), exact(x.double().cpu())) < 2e-2


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of what is not finite
@pytest.mark.parametrize(("value", "conditioning"), [(torch.nan, "phase"), (torch.inf, "phase"), (torch.inf, "cross")])
def test_what_is_not_finite_stays_where_it_is(value: float, conditioning: str) -> None:
    mixer = build(2, 256, conditioning=conditioning).bfloat16()
    x = torch.randn(2, 256, 2, device=DEVICE).bfloat16()
    clean = mixer(x)
    x[1, 5] = value
    x.requires_grad_()
    y = mixer(x)
    grad = torch.autograd.grad(y.float().sum(), x)[0]
    assert torch.equal(y[0], clean[0]) and y[1].isnan().all()
    assert grad[0].isfinite().all() and grad[1].isnan().any()


def test_frozen() -> None:
    mixer, x = build(3, 256).bfloat16(), torch.randn(2, 256, 3, device=DEVICE).bfloat16()
    expected = mixer(x)
    mixer.freeze()
    assert relative_error(mixer(x), expected) < 2**-8  # another rounding of h0_f, then to bfloat16


def test_a_frozen_kernel_is_put_in_order_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And again when it is another: frozen anew, or written over."""
    mixer, x = build(3, 256).bfloat16(), torch.randn(3, 256, 3, device=DEVICE).bfloat16()
    put, count = four_step.static_rows, []
    monkeypatch.setattr(four_step, "static_rows", lambda *given: (count.append(1), put(*given))[1])
    with torch.no_grad():
        first, again = mixer.freeze()(x), mixer(x)
        assert torch.equal(first, again) and len(count) == 1
        mixer.unfreeze()
        mixer.stages[0].static.delta += 1.0
        other = mixer.freeze()(x)
        assert len(count) == 2 and relative_error(other, first) > 0.1
        mixer.stages[0].static.kept.zero_()
        assert relative_error(mixer(x), other) > 0.1 and len(count) == 3
        # once a call while a graph is captured, which must not keep it, however many chunks of channels there are
        monkeypatch.setattr(passes, "capturing", lambda device: True)
        passes._FROZEN.clear()
        in_chunks(monkeypatch, four_step, 2 * 3 * 256)
        mixer(x)
        assert len(count) == 4 and not passes._FROZEN


def test_chunks_and_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    mixer, x = build(3, 256).bfloat16(), torch.randn(3, 256, 3, device=DEVICE).bfloat16()
    whole = torch.autograd.grad(mixer(x).float().square().sum(), list(mixer.parameters()))
    in_chunks(monkeypatch, four_step, 2 * 3 * 256)  # two channels
    parts = torch.autograd.grad(mixer(x).float().square().sum(), list(mixer.parameters()))
    again = torch.autograd.grad(mixer(x).float().square().sum(), list(mixer.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
    for a, b in zip(whole, parts, strict=True):
        assert relative_error(a, b) < 2**-7


def test_several_samples_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(four_step, "PROGRAMS", 1)
    monkeypatch.setitem(four_step.SHAPES, 256, four_step.SHAPES[256]._replace(programs=1))
    mixer = build(WIDTH, 256).bfloat16()
    assert_at_most_twice_as_far_off(mixer, torch.randn(5, 256, WIDTH, device=DEVICE).bfloat16())


class TestResidual:
    """The residual long convolution."""

    @pytest.fixture(autouse=True)
    def in_rows(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """See to it that it is not left to matrix products or FFTs."""
        calls = set()
        for name in ("write_plus_conv", "conv_gradients"):
            original = getattr(four_step, name)
            monkeypatch.setattr(four_step, name, lambda *given, f=original: (calls.add(f), f(*given))[1])
        yield
        assert len(calls) == 2

    @pytest.mark.parametrize(
        ("n", "options"),
        [(512, {}), (512, {"conditioning": "static"}), (256, {"boundary": "linear"})],
        ids=str,
    )
    def test_against_the_reference(self, n: int, options: dict[str, object]) -> None:
        mixer = build(WIDTH, n, residual_conv=True, **options).bfloat16()
        assert_at_most_twice_as_far_off(mixer, torch.randn(3, n, WIDTH, device=DEVICE).bfloat16())

    def test_masks_and_shorter_inputs(self) -> None:
        mixer = build(WIDTH, 512, residual_conv=True).bfloat16()
        x, mask = torch.randn(3, 504, WIDTH, device=DEVICE).bfloat16(), torch.rand(3, 504, device=DEVICE) > 0.3
        assert_at_most_twice_as_far_off(mixer, x, mask)

    @pytest.mark.skipif(DEVICE == "cpu", reason="takes minutes in the interpreter; needs a CUDA device")
    @pytest.mark.parametrize("n", [1024, 2048, 4096, 8192])
    def test_every_length(self, n: int) -> None:
        mixer = build(WIDTH, n, residual_conv=True).bfloat16()
        assert_at_most_twice_as_far_off(mixer, torch.randn(3, n, WIDTH, device=DEVICE).bfloat16())

    def test_autocast(self) -> None:
        """Weights and tokens are float32: the convolution takes the projection's type, and its kernel."""
        mixer, x = build(3, 512, residual_conv=True), torch.randn(2, 512, 3, device=DEVICE, requires_grad=True)
        expected = torch.autograd.grad(mixer(x).square().sum(), [x, mixer.residual_conv.static.delta])
        with torch.autocast(DEVICE, torch.bfloat16):
            grads = torch.autograd.grad(mixer(x).float().square().sum(), [x, mixer.residual_conv.static.delta])
        for a, b in zip(grads, expected, strict=True):
            assert a.dtype == b.dtype and relative_error(a, b) < 2**-5

    def test_frozen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """And both static kernels are put in order once, whatever follows."""
        put, count = four_step.static_rows, []
        mixer, x = build(3, 512, residual_conv=True).bfloat16(), torch.randn(2, 512, 3, device=DEVICE).bfloat16()
        x.requires_grad_()
        expected = mixer(x)
        grad = torch.autograd.grad(expected.float().sum(), x)[0]
        monkeypatch.setattr(four_step, "static_rows", lambda *given: (count.append(1), put(*given))[1])
        frozen = mixer.freeze()(x)
        assert relative_error(frozen, expected) < 2**-8  # another rounding of h0_f, then to bfloat16
        assert relative_error(torch.autograd.grad(frozen.float().sum(), x)[0], grad) < 2**-7
        assert torch.equal(mixer(x), frozen) and len(count) == 2
