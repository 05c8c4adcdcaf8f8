"""Rows of 8,192 and more in three passes, on a GPU or in Triton's interpreter: output and every gradient."""

from collections.abc import Iterator

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE, assert_at_most_twice_as_far_off, build, in_chunks

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels import passes
from orchid.ops.kernels.long import path as long
from orchid.ops.kernels.operands import Decay, Static

pytestmark = pytest.mark.usefixtures("few_programs")

# Channels and samples: the ratio of two random errors needs many numbers; the interpreter takes its time.
WIDTH, BATCH = (2, 1) if DEVICE == "cpu" else (32, 3)
# The shortest rows.
N = 8192


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See to it that a test goes where it should, forward and backward."""
    calls = set()
    for name in ("write", "gradients"):
        original = getattr(long, name)
        monkeypatch.setattr(long, name, lambda *given, f=original: (calls.add(f), f(*given))[1])
    yield
    assert len(calls) == 2


@pytest.mark.usefixtures("served")
class TestLongRows:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"conditioning": "static"},
            {"kernel_size": 5, "short_padding": "same", "norm": "backward", "boundary": "linear"},
        ],
        ids=str,
    )
    def test_against_the_reference(self, options: dict[str, object]) -> None:
        length = N // 2 if options.get("boundary") == "linear" else N
        width = max(4, WIDTH) if options.get("conditioning") == "static" else WIDTH
        mixer = build(width, length, **options).bfloat16()
        assert_at_most_twice_as_far_off(mixer, torch.randn(BATCH, length, width, device=DEVICE).bfloat16())

    def test_samples_masks_and_shorter_inputs(self) -> None:
        mixer = build(WIDTH, N, short_padding="circular").bfloat16()
        x, mask = torch.randn(2, N - 200, WIDTH, device=DEVICE).bfloat16(), torch.rand(2, N - 200, device=DEVICE) > 0.3
        mask[1, 100:] = False
        assert_at_most_twice_as_far_off(mixer, x, mask)

    @pytest.mark.parametrize("scale", [1e6] if DEVICE == "cpu" else [0.0, 1e-6, 1e6])
    def test_magnitudes(self, scale: float) -> None:
        mixer = build(2, N).bfloat16()
        x = (torch.randn(1, N, 2, device=DEVICE) * scale).bfloat16()
        y = mixer(x)
        grads = torch.autograd.grad(y.sum(), list(mixer.parameters()))
        exact = type(mixer)(2, N, **{**mixer._options(), "backend": "torch"}).double()
        exact.load_state_dict(mixer.state_dict())
        assert all(torch.isfinite(t).all() for t in (y, *grads))
        assert relative_error(y.cpu(), exact(x.double().cpu())) < 2e-2

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of what is not finite
    def test_what_is_not_finite_stays_in_its_sample(self) -> None:
        mixer, x = build(1, N, conditioning="static").bfloat16(), torch.randn(2, N, 1, device=DEVICE).bfloat16()
        clean = mixer(x)
        x[1, 5] = torch.nan
        x.requires_grad_()
        y = mixer(x)
        grad = torch.autograd.grad(y.float().sum(), x)[0]
        assert torch.equal(y[0], clean[0]) and y[1].isnan().all()
        assert grad[0].isfinite().all() and grad[1].isnan().any()

    def test_chunks_and_the_same_bits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mixer, x = build(3, N, conditioning="static").bfloat16(), torch.randn(1, N, 3, device=DEVICE).bfloat16()

        def gradients() -> tuple[torch.Tensor, ...]:
            return torch.autograd.grad(mixer(x).float().square().sum(), list(mixer.parameters()))

        whole = gradients()
        if DEVICE == "cuda":  # the interpreter has one thread
            assert all(torch.equal(a, b) for a, b in zip(whole, gradients(), strict=True))
        in_chunks(monkeypatch, long, 2 * N)  # two channels
        monkeypatch.setattr(passes, "SMALL", 0)  # and nothing of the static kernel kept
        parts = gradients()
        for a, b in zip(whole, parts, strict=True):
            assert relative_error(a, b) < 2**-7


def test_the_static_kernel_comes_in_the_same_order_from_all_its_forms() -> None:
    """From its network, from T h0 of pairs of channels, and from h0_f of a frozen layer."""
    mixer = build(3, N, conditioning="static")
    static = mixer.stages[0].static
    network = static.filter
    kernel = Static(network.hidden(), network.output, static.delta, None, N, Decay(*network.decay()), half=False)
    made, scales = long.empty_static_rows(N, 3, network.output)
    long.write_static_rows(kernel, 0, 3, made, scales)
    h0_f = torch.view_as_real(static()).contiguous()
    paired = long.static_rows(kernel, passes.static_spectra(kernel, 0, 3), 0, 3)
    frozen = long.static_rows(kernel._replace(kept=h0_f), h0_f, 0, 3)
    computed, paired, frozen = (rows * most[..., None, None] for rows, most in ((made, scales), paired, frozen))
    assert relative_error(paired, frozen) < 2**-11  # float16
    assert relative_error(computed, frozen) < 2**-10  # its operands, too


@pytest.mark.skipif(DEVICE == "cpu", reason="takes minutes in the interpreter; needs a CUDA device")
@pytest.mark.parametrize("n", sorted(long.SHAPES)[1:])
@pytest.mark.parametrize("conditioning", ["phase", "static"])
def test_every_length(n: int, conditioning: str) -> None:
    mixer = build(16, n, conditioning=conditioning).bfloat16()
    assert_at_most_twice_as_far_off(mixer, torch.randn(1, n, 16, device=DEVICE).bfloat16())


@pytest.mark.skipif(DEVICE == "cpu", reason="takes minutes in the interpreter; needs a CUDA device")
def test_inputs_that_are_not_whole_octets_go_around_the_fft() -> None:
    mixer = build(16, 16384).bfloat16()
    assert_at_most_twice_as_far_off(mixer, torch.randn(1, 16381, 16, device=DEVICE).bfloat16())
