"""The fused kernels, on a GPU or in Triton's interpreter: output and every gradient against the reference."""

from collections.abc import Iterator

import pytest
import torch
from helpers import option_id, relative_error
from kernel_checks import DEVICE, TOLERANCE, assert_at_most_twice_as_far_off, build, check, in_chunks

from orchid import OrchidMixer

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels import passes
from orchid.ops.kernels.around_fft import path as around_fft
from orchid.ops.kernels.around_fft import products
from orchid.ops.kernels.long import path as long
from orchid.ops.kernels.operands import Decay, Operands
from orchid.ops.kernels.static import conv as static_conv
from orchid.ops.kernels.static import spectra as static
from orchid.ops.kernels.streams import launches as octet_passes

pytestmark = pytest.mark.usefixtures("few_programs")

CASES = [
    ({"conditioning": "static"}, 16, 16),
    ({"conditioning": "static", "short_padding": "same"}, 12, 7),
    ({}, 16, 16),
    ({"kernel_size": 5}, 32, 21),
    ({"short_padding": "same", "norm": "backward"}, 16, 9),
    ({"short_padding": "circular"}, 16, 16),
    ({"short_padding": "circular", "kernel_size": 5}, 10, 7),
    ({"conditioning": "cross"}, 16, 16),
    ({"conditioning": "cross", "kernel_size": 5, "short_padding": "same"}, 15, 11),
    ({"conditioning": "cross", "short_padding": "circular", "norm": "backward"}, 16, 13),
    ({"residual_conv": True}, 16, 12),
    ({"order": 2}, 16, 13),
    ({"transform": "dct", "conditioning": "static"}, 12, 12),
    ({"transform": "dct"}, 16, 13),
    ({"transform": "dct", "norm": "backward", "kernel_size": 5}, 15, 15),
    ({"transform": "dct", "conditioning": "cross", "boundary": "linear"}, 11, 9),
    ({"transform": "dct", "order": 2, "residual_conv": True}, 14, 14),
    ({"order": 2, "short_padding": "same", "kernel_size": 5}, 12, 12),
    ({"order": 3, "conditioning": "cross", "short_padding": "circular"}, 10, 8),
]


@pytest.mark.parametrize(
    ("options", "n", "length"), CASES, ids=lambda v: option_id(v) if isinstance(v, dict) else str(v)
)
def test_against_the_reference(options: dict[str, object], n: int, length: int) -> None:
    """A stage's rounding is the next one's error, which adds its own: a chain of order m may be off by m tolerances."""
    mixer = build(length=n, **options)
    check(mixer, torch.randn(2, length, 2, device=DEVICE), tolerance=mixer.order * TOLERANCE)


@pytest.mark.parametrize(
    "options", [{"conditioning": "static"}, {}, {"conditioning": "cross"}, {"order": 2}], ids=option_id
)
def test_masks(options: dict[str, object]) -> None:
    """Anywhere, with NaN behind them, and a row without a single real token."""
    mixer = build(**options)
    mask = torch.rand(3, 14, device=DEVICE) > 0.3
    mask[1] = False
    x = torch.randn(3, 14, 2, device=DEVICE)
    check(mixer, x, mask)
    poisoned = x.masked_fill(~mask[..., None], float("nan"))
    assert torch.equal(mixer(poisoned, mask)[mask], mixer(x, mask)[mask])


@pytest.mark.parametrize("conditioning", ["phase", "cross"])
def test_context(conditioning: str) -> None:
    mask = torch.rand(2, 9, device=DEVICE) > 0.3
    x, context = torch.randn(2, 12, 2, device=DEVICE), torch.randn(2, 9, 2, device=DEVICE)
    check(build(conditioning=conditioning), x, context=context, context_mask=mask)
    check(build(conditioning=conditioning), x, torch.rand(2, 12, device=DEVICE) > 0.3, context)
    check(build(conditioning=conditioning, order=2), x, context=context)


def test_more_than_one_block_of_everything() -> None:
    """Lengths beyond a program's block, batches summed in groups."""
    check(build(2, 600), torch.randn(3, 550, 2, device=DEVICE), tolerance=2e-5)


def test_strided_streams() -> None:
    """Streams stored time first give what streams stored channel by channel give."""
    mixer = build()
    p = torch.randn(2, 16, 6, device=DEVICE).transpose(1, 2)
    assert not p.is_contiguous()
    strided, contiguous = mixer._fused_mix(p, None, None, None), mixer._fused_mix(p.contiguous(), None, None, None)
    assert torch.equal(strided, contiguous)


@pytest.mark.parametrize("size", [0.0, 1e-25, 1e20])
def test_magnitudes_whose_squares_leave_float32(size: float) -> None:
    mixer = build()
    mixer.in_proj.bias.data.zero_()
    x = (torch.randn(2, 16, 2, device=DEVICE) * 1e-6).requires_grad_()
    context = (torch.randn(2, 16, 2, device=DEVICE) * size).requires_grad_()
    y = mixer(x, context=context)
    grads = torch.autograd.grad(y.sum(), (x, context))
    assert all(torch.isfinite(t).all() for t in (y, *grads))
    if size == 1e20:
        check(mixer, x.detach(), context=context.detach())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("conditioning", ["phase", "cross"])
def test_half_precision(conditioning: str, dtype: torch.dtype) -> None:
    # The static kernel's gradient in cross conditioning is mostly its lag 0, one number a channel: of 4 channels the
    # ratio of two errors is chance (on a GPU 2.3, the same with one and with three TF32 terms). The interpreter, which
    # would take minutes for more, is lucky.
    width = 4 if DEVICE == "cpu" else 32
    mixer = build(width, 64, conditioning=conditioning).to(dtype)
    assert_at_most_twice_as_far_off(mixer, torch.randn(4, 64, width, device=DEVICE, dtype=dtype))


class TestResidual:
    """The residual long convolution, added where its rows become channels."""

    @pytest.mark.parametrize(
        ("n", "length", "options"), [(80, 70, {}), (48, 48, {"boundary": "linear"}), (33, 33, {})], ids=str
    )
    def test_tiles_masks_and_an_odd_number_of_channels(
        self, monkeypatch: pytest.MonkeyPatch, n: int, length: int, options: dict[str, object]
    ) -> None:
        monkeypatch.setattr(static_conv, "CHUNK", 4 * 3 * 2 * n)  # four channels
        mask = torch.rand(3, length, device=DEVICE) > 0.3
        mixer = build(5, n, residual_conv=True, **options)
        check(mixer, torch.randn(3, length, 5, device=DEVICE), mask, tolerance=2e-5)

    def test_half_precision_and_strided_input(self) -> None:
        n = 72 if DEVICE == "cpu" else 300  # on a GPU shorter ones are matrix products
        mixer = build(4, n, residual_conv=True).bfloat16()
        x = torch.randn(3, 4, n, device=DEVICE).bfloat16()
        assert_at_most_twice_as_far_off(mixer, x.transpose(1, 2))

    def test_frozen_and_recomputed_spectra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        mixer, x = build(3, 40, residual_conv=True), torch.randn(2, 40, 3, device=DEVICE, requires_grad=True)
        y = mixer(x)
        expected = torch.autograd.grad(y.square().sum(), [x, *mixer.parameters()])
        monkeypatch.setattr(passes, "SMALL", 0)
        again = torch.autograd.grad(mixer(x).square().sum(), [x, *mixer.parameters()])
        for a, b in zip(again, expected, strict=True):
            assert relative_error(a, b) < TOLERANCE
        frozen = mixer.freeze()(x)
        assert relative_error(frozen, y) < TOLERANCE
        assert relative_error(torch.autograd.grad(frozen.square().sum(), x)[0], expected[0]) < TOLERANCE

    def test_operator(self) -> None:
        mixer = build(3, 16)
        static = mixer.stages[0].static
        hidden = static.filter.hidden().detach().requires_grad_()
        x, u = (torch.randn(*shape, device=DEVICE, requires_grad=True) for shape in ((2, 3, 12), (2, 12, 3)))
        given = (x, u, hidden, static.filter.output, static.delta, None, 16, list(static.filter.decay()))
        torch.library.opcheck(static_conv._conv.op, given)


class TestOctets:
    """Eight positions are one vector where rows are whole octets."""

    @pytest.fixture(autouse=True)
    def served(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """See to it that a test in here goes where it should, in several blocks."""
        calls = set()
        for name in ("write_signals", "write_gated"):
            original = getattr(octet_passes, name)
            monkeypatch.setattr(octet_passes, name, lambda *given, f=original: (calls.add(f), f(*given))[1])
        monkeypatch.setattr(octet_passes, "OCTETS", 32)
        yield
        assert len(calls) == 2

    @pytest.mark.parametrize(
        ("options", "n", "length"),
        [
            ({"kernel_size": 5, "short_padding": "same"}, 256, 248),
            ({"kernel_size": 5, "short_padding": "circular"}, 32, 24),
            ({"short_padding": "same", "norm": "backward"}, 32, 16),
            ({"conditioning": "cross", "boundary": "linear"}, 24, 24),
            ({"conditioning": "cross", "kernel_size": 5}, 16, 16),
            ({"conditioning": "static", "short_padding": "circular"}, 16, 8),
        ],
        ids=lambda v: option_id(v) if isinstance(v, dict) else str(v),
    )
    def test_masks_and_an_odd_number_of_channels(self, options: dict[str, object], n: int, length: int) -> None:
        mask = torch.rand(3, length, device=DEVICE) > 0.3
        mask[1] = False
        check(build(3, n, **options), torch.randn(3, length, 3, device=DEVICE), mask, tolerance=2e-5)

    def test_half_precision(self) -> None:
        mixer, x = build(3, 384).bfloat16(), torch.randn(2, 384, 3, device=DEVICE).bfloat16()
        assert_at_most_twice_as_far_off(mixer, x)


class TestPairsOfPositions:
    """Half precision reads two positions as one word where rows are even."""

    @pytest.mark.parametrize(
        ("length", "padding"), [(32, "causal"), (26, "causal"), (25, "causal"), (26, "same"), (32, "circular")]
    )
    def test_gradients_masks_and_shorter_inputs(self, length: int, padding: str) -> None:
        mixer, x = build(4, 32, short_padding=padding).bfloat16(), torch.randn(2, length, 4, device=DEVICE).bfloat16()
        assert_at_most_twice_as_far_off(mixer, x, torch.rand(2, length, device=DEVICE) > 0.3)

    def test_context(self) -> None:
        mixer, x = build(2, 32, norm="backward").bfloat16(), torch.randn(3, 20, 2, device=DEVICE).bfloat16()
        assert_at_most_twice_as_far_off(mixer, x, context=torch.randn_like(x[:, :14]))

    @pytest.mark.parametrize(("scale", "offset"), [(1.0, 300.0), (1e-6, 0.0), (1e6, 0.0), (0.0, 0.0)])
    def test_offsets_and_magnitudes(self, scale: float, offset: float) -> None:
        mixer = build(2, 64, conditioning="static").bfloat16()
        x = (torch.randn(1, 64, 2, device=DEVICE) * scale + offset).bfloat16()
        y = mixer(x)
        exact = OrchidMixer(2, 64, **{**mixer._options(), "backend": "torch"}).double()
        exact.load_state_dict(mixer.state_dict())
        assert torch.isfinite(y).all()
        assert relative_error(y.cpu(), exact(x.double().cpu())) < 2e-2


class TestChunks:
    """Channels a few at a time, and a static kernel too large to be kept."""

    @pytest.mark.parametrize("conditioning", ["static", "phase", "cross"])
    @pytest.mark.parametrize("small", [0, 2**23])
    def test_against_the_reference(self, monkeypatch: pytest.MonkeyPatch, conditioning: str, small: int) -> None:
        in_chunks(monkeypatch, passes.around_fft, 2 * 2 * 16)  # two channels of two samples
        monkeypatch.setattr(passes, "SMALL", small)
        check(build(3, 16, conditioning=conditioning), torch.randn(2, 16, 3, device=DEVICE))


def test_linear_boundary() -> None:
    check(build(boundary="linear"), torch.randn(2, 13, 2, device=DEVICE))


def test_frozen() -> None:
    """The kept spectrum gives the same output, and the same gradient of the input."""
    mixer, x = build(), torch.randn(2, 16, 2, device=DEVICE, requires_grad=True)
    results = []
    for layer in (mixer, mixer.freeze()):
        y = layer(x)
        results.append((y, *torch.autograd.grad(y.square().sum(), x)))
    for ours, theirs in zip(*results, strict=True):
        assert relative_error(ours.cpu(), theirs.double().cpu()) < 1e-6


@pytest.mark.filterwarnings("ignore")  # the interpreter's, about NaN
def test_samples_do_not_touch_each_other() -> None:
    """A sample's output is the same bits whatever stands beside it, NaN included."""
    mixer, x = build(4), torch.randn(3, 16, 4, device=DEVICE)
    alone = mixer(x[:1])
    x[1] *= 1e6
    x[2, 3] = float("nan")
    assert torch.equal(mixer(x)[:1], alone)


def test_every_buffer_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers that start as NaN change nothing."""
    mixer, x = build(2, 40), torch.randn(2, 33, 2, device=DEVICE)
    mask = torch.rand(2, 33, device=DEVICE) > 0.3

    def gradients() -> list[torch.Tensor]:
        y = mixer(x, mask)
        return [y[mask], *torch.autograd.grad(y[mask].square().sum(), list(mixer.parameters()))]

    clean = gradients()
    for owner, name in ((torch.Tensor, "new_empty"), (torch, "empty_like")):
        original = getattr(owner, name)

        def poisoned(*arguments: object, original: object = original, **keywords: object) -> torch.Tensor:
            fresh = original(*arguments, **keywords)
            return fresh.fill_(float("nan")) if fresh.is_floating_point() else fresh

        monkeypatch.setattr(owner, name, poisoned)
    assert all(torch.equal(a, b) for a, b in zip(clean, gradients(), strict=True))


def test_the_same_bits_every_time() -> None:
    mixer, x = build(), torch.randn(3, 16, 2, device=DEVICE)
    runs = [torch.autograd.grad(mixer(x).square().sum(), list(mixer.parameters())) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@pytest.mark.parametrize("options", [{"kernel_size": 5}, {"conditioning": "cross", "kernel_size": 5}], ids=option_id)
def test_five_taps_in_half_precision(options: dict[str, object]) -> None:
    mixer = build(4, 32, **options).bfloat16()
    assert_at_most_twice_as_far_off(mixer, torch.randn(3, 30, 4, device=DEVICE, dtype=torch.bfloat16))


def test_groups_divide_the_batch() -> None:
    assert products.groups_of(64, 64) == 32
    assert products.groups_of(7, 1) == 7
    assert products.groups_of(1, 1) == 1
    assert products.groups_of(65537, 1) == 1  # a prime beyond what a launch takes


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnAGpu:
    """Sizes and surroundings that only a GPU has."""

    def both(self, n: int, batch: int, width: int, **options: object) -> tuple[OrchidMixer, OrchidMixer, torch.Tensor]:
        mixer = build(width, n, **options)
        exact = OrchidMixer(width, n, **{**mixer._options(), "backend": "torch"}).to(DEVICE).double()
        exact.load_state_dict(mixer.state_dict())
        return mixer, exact, torch.randn(batch, n, width, device=DEVICE)

    @pytest.mark.parametrize("conditioning", ["static", "phase", "cross"])
    @pytest.mark.parametrize(
        ("n", "batch", "width"), [(16, 7, 5), (128, 33, 3), (1024, 3, 7), (16384, 2, 5), (131072, 1, 3)]
    )
    def test_float32(self, n: int, batch: int, width: int, conditioning: str) -> None:
        mixer, exact, x = self.both(n, batch, width, conditioning=conditioning)
        results = []
        for layer, leaf in ((mixer, x), (exact, x.double())):
            leaf = leaf.clone().requires_grad_()
            y = layer(leaf)
            results.append([y, *torch.autograd.grad(y.square().mean(), [leaf, *layer.parameters()])])
        for ours, theirs in zip(*results, strict=True):
            assert relative_error(ours.cpu(), theirs.cpu()) < 1e-5

    @pytest.mark.parametrize("n", [32, 128, 256, 512, 2048, 8192, 32768, 131072])
    def test_bfloat16(self, n: int) -> None:
        mixer = build(6, n).bfloat16()
        x = torch.randn(3 if n < 10000 else 1, n, 6, device=DEVICE, dtype=torch.bfloat16)
        assert_at_most_twice_as_far_off(mixer, x)

    def test_a_million_tokens(self) -> None:
        mixer = build(4, 2**20).bfloat16()
        assert_at_most_twice_as_far_off(mixer, torch.randn(1, 2**20, 4, device=DEVICE, dtype=torch.bfloat16))

    def test_autocast(self) -> None:
        mixer, exact, x = self.both(1024, 2, 8)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = mixer(x)
        assert y.dtype == torch.bfloat16
        assert relative_error(y.cpu(), exact(x.double()).cpu()) < 2e-2

    @pytest.mark.parametrize(("n", "batch"), [(128, 2), (128, 32), (2048, 2), (32768, 2)])
    def test_captured_as_a_graph(self, n: int, batch: int) -> None:
        mixer, x = build(8, n).bfloat16(), torch.randn(batch, n, 8, device=DEVICE, dtype=torch.bfloat16)
        parameters = list(mixer.parameters())
        expected = torch.autograd.grad(mixer(x).float().square().mean(), parameters)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                torch.autograd.grad(mixer(x).float().square().mean(), parameters)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = torch.autograd.grad(mixer(x).float().square().mean(), parameters)
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(captured, expected, strict=True))

    @pytest.mark.filterwarnings("ignore")
    def test_compiles_with_inductor(self) -> None:
        mixer, x = build(8, 256), torch.randn(2, 256, 8, device=DEVICE)
        compiled = torch.compile(mixer, fullgraph=True)
        assert relative_error(compiled(x).cpu(), mixer(x).double().cpu()) < 1e-5


@pytest.mark.parametrize(("n", "length"), [(256, 251), (256, 248), (60, 60)])
def test_the_static_kernel_is_computed_once(monkeypatch: pytest.MonkeyPatch, n: int, length: int) -> None:
    """By whatever path a length takes, and kept for the backward pass."""
    calls = []

    class Counted:
        def __getitem__(self, grid: object) -> object:
            return lambda *given, **more: (calls.append(grid), kernel[grid](*given, **more))

    kernel = static.static_kernel
    monkeypatch.setattr(static, "static_kernel", Counted())
    mixer, x = build(2, n).bfloat16(), torch.randn(1, length, 2, device=DEVICE).bfloat16()
    mixer(x).sum().backward()
    assert len(calls) == 1


def test_rows_whose_columns_do_not_fit_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On small GPUs rows of 524,288 and more go around the FFT, and so does what is kept of their static kernel."""
    monkeypatch.setattr(long, "shared_memory", lambda device: 99 << 10)
    for n, path in ((2**18, long), (2**19, around_fft)):
        p = torch.empty(1, 3, n, dtype=torch.bfloat16, device="meta")
        small = torch.empty(3, 3, device="meta")
        given = Operands(
            p, None, None, None, small[0], small, small[0], small[None, :1], small[:1], None, None, small[0, :1], None,
            n, n, "causal", 1.0, Decay(1.0, 1.0, 0.0, 0.0, 1.0), False,
        )  # fmt: skip
        assert passes.path_of(given, p) is path
        assert passes._keeper(given) is (path if path is long else None)
