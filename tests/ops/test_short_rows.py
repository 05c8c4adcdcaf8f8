"""Many short rows in half precision, on a GPU or in Triton's interpreter: output and every gradient."""

from collections.abc import Iterator

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE, assert_at_most_twice_as_far_off, build, in_chunks

from orchid import OrchidMixer

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels import passes
from orchid.ops.kernels.dense import path as dense

pytestmark = pytest.mark.usefixtures("few_programs")


class TestShortRows:
    """Many short rows in half precision take one kernel, whose transforms are matrix products."""

    @pytest.fixture(autouse=True)
    def served(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """See to it that a test in here goes where it should."""
        calls = []
        for name in ("write", "gradients"):
            original = getattr(dense, name)
            monkeypatch.setattr(dense, name, lambda *given, f=original: (calls.append(f), f(*given))[1])
        if DEVICE == "cpu":
            monkeypatch.setattr(dense, "ROWS", 16)  # the interpreter takes its time
        yield
        assert len(calls) >= 2

    @pytest.mark.parametrize(
        ("n", "options"),
        [
            (64, {}),
            (64, {"conditioning": "static"}),
            (64, {"kernel_size": 5, "short_padding": "same", "norm": "backward"}),
            (64, {"short_padding": "circular"}),
            (32, {"boundary": "linear"}),
            (128, {}),
        ],
        ids=str,
    )
    def test_against_the_reference(self, n: int, options: dict[str, object]) -> None:
        mixer = build(4, n, **options).bfloat16()
        assert_at_most_twice_as_far_off(mixer, torch.randn(26, n, 4, device=DEVICE).bfloat16())

    @pytest.mark.parametrize("padding", ["causal", "same", "circular"])
    def test_masks_and_shorter_inputs(self, padding: str) -> None:
        mixer, x = build(4, 64, short_padding=padding).bfloat16(), torch.randn(26, 40, 4, device=DEVICE).bfloat16()
        mask = torch.rand(26, 40, device=DEVICE) > 0.3
        mask[3] = False
        assert_at_most_twice_as_far_off(mixer, x, mask)

    @pytest.mark.parametrize(("scale", "offset"), [(1.0, 300.0), (1e-6, 0.0), (1e6, 0.0), (0.0, 0.0)])
    def test_offsets_and_magnitudes(self, scale: float, offset: float) -> None:
        mixer = build(2, 64, conditioning="static").bfloat16()
        x = (torch.randn(32, 64, 2, device=DEVICE) * scale + offset).bfloat16()
        y = mixer(x)
        grads = torch.autograd.grad(y.sum(), list(mixer.parameters()))
        exact = OrchidMixer(2, 64, **{**mixer._options(), "backend": "torch"}).double()
        exact.load_state_dict(mixer.state_dict())
        assert all(torch.isfinite(t).all() for t in (y, *grads))
        assert relative_error(y.cpu(), exact(x.double().cpu())) < 2e-2

    def test_frozen(self) -> None:
        mixer, x = build(3, 64).bfloat16(), torch.randn(24, 64, 3, device=DEVICE).bfloat16()
        expected = mixer(x)
        mixer.freeze()
        assert relative_error(mixer(x), expected) < 2**-8  # another rounding of h0_f, then to bfloat16

    def test_nan_behind_masks_and_expanded_gradients(self) -> None:
        mixer, x = build(2, 64).bfloat16(), torch.randn(26, 64, 2, device=DEVICE).bfloat16()
        mask = torch.rand(26, 64, device=DEVICE) > 0.3
        clean = mixer(x, mask)
        dirty = mixer(x.masked_fill(~mask[..., None], torch.nan), mask)
        assert torch.equal(clean[mask], dirty[mask])
        grads = torch.autograd.grad(dirty[mask].float().sum(), list(mixer.parameters()))
        assert all(torch.isfinite(grad).all() for grad in grads)

    def test_backward_under_autocast(self) -> None:
        mixer, x = build(2, 64).bfloat16(), torch.randn(26, 64, 2, device=DEVICE).bfloat16()
        parameters = [mixer.stages[0].static.delta, mixer.stages[0].static.filter.output]
        outside = torch.autograd.grad(mixer(x).float().square().sum(), parameters)
        with torch.autocast(DEVICE, torch.bfloat16):
            inside = torch.autograd.grad(mixer(x).float().square().sum(), parameters)
        assert all(torch.equal(a, b) for a, b in zip(outside, inside, strict=True))

    def test_too_little_shared_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mixer, x = build(1, 128).bfloat16(), torch.randn(26, 128, 1, device=DEVICE).bfloat16()
        given = []
        original = dense.serves
        monkeypatch.setattr(dense, "serves", lambda *rows: (given.append(rows), original(*rows))[1])
        mixer(x).float().sum().backward()
        monkeypatch.setattr(dense, "shared_memory", lambda device: 101376)
        assert not any(original(*rows) for rows in given)

    def test_chunks_and_the_same_bits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mixer, x = build(3, 64).bfloat16(), torch.randn(26, 64, 3, device=DEVICE).bfloat16()
        whole = torch.autograd.grad(mixer(x).float().square().sum(), list(mixer.parameters()))
        in_chunks(monkeypatch, passes.dense, 2 * 26 * 64)  # two channels of short rows
        parts = torch.autograd.grad(mixer(x).float().square().sum(), list(mixer.parameters()))
        again = torch.autograd.grad(mixer(x).float().square().sum(), list(mixer.parameters()))
        assert all(torch.equal(a, b) for a, b in zip(parts, again, strict=True))
        for a, b in zip(whole, parts, strict=True):
            assert relative_error(a, b) < 2**-7


def test_export_of_any_batch() -> None:
    """Few samples take another path than many, and both are the operator's to choose."""
    mixer, batch = build(2, 64).bfloat16(), torch.export.Dim("batch", min=2, max=64)
    x = torch.randn(26, 64, 2, device=DEVICE).bfloat16()
    torch.export.export(mixer, (x,), dynamic_shapes={"x": {0: batch}})
