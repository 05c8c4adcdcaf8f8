"""What the paper and the design claim of the layer, each with a case that fails if it is not so."""

import pytest
import torch
from helpers import assert_close, option_id, relative_error

from orchid import OrchidMixer, create_mixer
from orchid.ops import reference

CONDITIONED = [{"conditioning": "phase"}, {"conditioning": "cross"}]
VARIANTS = [
    *CONDITIONED,
    {"conditioning": "static"},
    {"transform": "dct"},
    {"boundary": "linear"},
    {"short_padding": "circular"},
    {"short_padding": "same", "boundary": "linear"},
    {"residual_conv": True},
    {"order": 2},
    {"order": 2, "transform": "dct", "residual_conv": True},
]


def build(max_length: int, d_model: int = 6, **options: object) -> OrchidMixer:
    return OrchidMixer(d_model, max_length, **options).double()


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


class TestShiftEquivariance:
    """shift(y) = layer(shift(x)): exact for the DFT on a circle when the short convolutions wrap too."""

    @pytest.mark.parametrize("shift", [1, 5, 16])
    @pytest.mark.parametrize("length", [16, 17])
    @pytest.mark.parametrize(
        "options", [*CONDITIONED, {"order": 2}, {"residual_conv": True}, {"spatial_layers": 3}], ids=option_id
    )
    def test_exact(self, options: dict[str, object], length: int, shift: int) -> None:
        mixer, x = build(length, short_padding="circular", **options), draw(2, length, 6)
        assert_close("y", mixer(x.roll(shift, 1)), mixer(x).roll(shift, 1))

    @pytest.mark.parametrize("options", CONDITIONED, ids=option_id)
    def test_the_kernel_is_invariant(self, options: dict[str, object]) -> None:
        mixer, x = build(16, short_padding="circular", **options), draw(2, 16, 6)
        assert_close("h", mixer.kernel(x.roll(3, 1)), mixer.kernel(x))
        assert relative_error(mixer.kernel(draw(2, 16, 6)), mixer.kernel(x)) > 0.1

    @pytest.mark.parametrize(
        "options",
        [{"transform": "dct", "short_padding": "circular"}, {"short_padding": "causal"}, {"short_padding": "same"}],
        ids=option_id,
    )
    def test_does_not_hold(self, options: dict[str, object]) -> None:
        """The counter-examples: the DCT, and short convolutions that see the sequence's edge."""
        mixer, x = build(16, **options), draw(2, 16, 6)
        assert relative_error(mixer(x.roll(3, 1)), mixer(x).roll(3, 1)) > 1e-2

    @pytest.mark.parametrize("short_padding", ["causal", "same", "circular"])
    @pytest.mark.parametrize("boundary", ["circular", "linear"])
    def test_shifts_within_the_padding(self, boundary: str, short_padding: str) -> None:
        """Where nothing wraps around, the edge plays no part: left padding is as good as right padding."""
        mixer, x = build(32, boundary=boundary, short_padding=short_padding), draw(1, 10, 6)
        left = torch.cat((draw(1, 7, 6), x), dim=1)
        mask = (torch.arange(17) >= 7)[None]
        right = mixer(x)
        assert_close("y", mixer(left, mask)[:, 7:], right)


class TestPadding:
    """Padding, and whatever stands in it, changes no valid output and no gradient."""

    @pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
    @pytest.mark.parametrize("extra", [0, 1, 5, 22])
    @pytest.mark.parametrize("options", VARIANTS, ids=option_id)
    def test_right_padding(self, options: dict[str, object], extra: int, dtype: torch.dtype, limit: float) -> None:
        length = 10
        mixer = build(32, **options).to(dtype)
        x, upstream = draw(2, length, 6).to(dtype), draw(2, length, 6).to(dtype)
        garbage = torch.full((2, extra, 6), float("nan"), dtype=dtype)
        mask = (torch.arange(length + extra) < length).expand(2, -1)
        plain = self.outcome(mixer, x, None, upstream)
        padded = self.outcome(mixer, torch.cat((x, garbage), dim=1), mask, upstream)
        self.same(padded, plain, limit)

    @pytest.mark.parametrize("rubbish", [float("nan"), float("inf"), 1e30])
    @pytest.mark.parametrize("options", VARIANTS, ids=option_id)
    def test_masked_content(self, options: dict[str, object], rubbish: float) -> None:
        mixer, x = build(12, **options), draw(3, 12, 6)
        mask = torch.rand(3, 12) > 0.4
        mask[2] = False  # an all-pad row
        upstream = draw(3, 12, 6) * mask[..., None]
        spoiled = x.masked_fill(~mask[..., None], rubbish)
        self.same(self.outcome(mixer, spoiled, mask, upstream), self.outcome(mixer, x, mask, upstream), 0.0)

    def test_all_true_is_no_mask(self) -> None:
        mixer, x = build(12), draw(2, 9, 6)
        assert torch.equal(mixer(x, torch.ones(2, 9, dtype=torch.bool)), mixer(x))

    @pytest.mark.parametrize("options", VARIANTS, ids=option_id)
    def test_a_batch_of_one_is_a_row_of_the_batch(self, options: dict[str, object]) -> None:
        mixer, x = build(12, **options), draw(3, 12, 6)
        mask = torch.rand(3, 12) > 0.3
        assert_close("row", mixer(x[1:2], mask[1:2])[mask[1:2]], mixer(x, mask)[1:2][mask[1:2]])

    @pytest.mark.parametrize("options", CONDITIONED, ids=option_id)
    def test_masked_context(self, options: dict[str, object]) -> None:
        mixer, x, context = build(16, **options), draw(2, 12, 6), draw(2, 7, 6)
        padded = torch.cat((context, torch.full((2, 4, 6), float("nan"), dtype=torch.float64)), dim=1)
        mask = (torch.arange(11) < 7).expand(2, -1)
        assert_close("y", mixer(x, context=padded, context_mask=mask), mixer(x, context=context))

    @staticmethod
    def outcome(mixer: OrchidMixer, x: torch.Tensor, mask: torch.Tensor | None, upstream: torch.Tensor) -> dict:
        x = x.detach().requires_grad_()
        length = upstream.shape[1]
        y = mixer(x, mask)[:, :length]
        valid = torch.ones(y.shape[:2], dtype=torch.bool) if mask is None else mask[:, :length]
        y = y.masked_fill(~valid[..., None], 0.0)
        parameters = dict(mixer.named_parameters())
        gradients = torch.autograd.grad(y, [x, *parameters.values()], upstream)
        named = dict(zip(["x", *parameters], gradients, strict=True))
        named["x"] = named["x"][:, :length]
        return {"y": y} | named

    @staticmethod
    def same(actual: dict, expected: dict, limit: float) -> None:
        for key, value in expected.items():
            scale = value.abs().max().clamp_min(1.0)
            assert torch.isfinite(actual[key]).all(), key
            assert (actual[key] - value).abs().max() <= limit * scale, key


class TestIntrospection:
    @pytest.mark.parametrize("options", [o for o in VARIANTS if "order" not in o], ids=option_id)
    def test_mixing_matrix_reproduces_the_layer(self, options: dict[str, object]) -> None:
        mixer, x = build(14, **options), draw(2, 11, 6)
        mask = torch.rand(2, 11) > 0.2
        values = mixer.values(x, mask)
        channels = [mixer.mixing_matrix(x, mask, channel=c) @ values[..., c, None] for c in range(6)]
        y = torch.cat(channels, dim=-1)
        if mixer.residual_conv is not None:
            y = y + mixer.residual_conv(x.masked_fill(~mask[..., None], 0.0).transpose(1, 2)).transpose(1, 2)
        rebuilt = torch.nn.functional.linear(y, mixer.out_proj.weight, mixer.out_proj.bias)
        assert_close("y", rebuilt[mask], mixer(x, mask)[mask])

    def test_mixing_matrix_with_context(self) -> None:
        mixer, x, context = build(14), draw(2, 11, 6), draw(2, 5, 6)
        mixed = [mixer.mixing_matrix(x, context=context, channel=c) @ mixer.values(x)[..., c, None] for c in range(6)]
        rebuilt = torch.nn.functional.linear(torch.cat(mixed, dim=-1), mixer.out_proj.weight, mixer.out_proj.bias)
        assert_close("y", rebuilt, mixer(x, context=context))

    @pytest.mark.parametrize("boundary", ["circular", "linear"])
    def test_mixing_matrix_holds_the_kernel(self, boundary: str) -> None:
        """A[t, l] = s2[t] h[t - l] s1[l]: the same lag, the same kernel value."""
        mixer, x = build(9, boundary=boundary), draw(1, 9, 6)
        kernel, matrix = mixer.kernel(x)[0, 2], mixer.mixing_matrix(x, channel=2)[0]
        s1, s2 = mixer._streams(x, None, None, None).gates
        t = torch.arange(9)
        expected = s2[0, 2, :, None] * kernel[(t[:, None] - t[None, :]) % mixer.n] * s1[0, 2]
        assert_close("A", matrix, expected)

    @pytest.mark.parametrize("options", VARIANTS, ids=option_id)
    def test_kernel_shape(self, options: dict[str, object]) -> None:
        mixer, x = build(10, **options), draw(3, 8, 6)
        kernel = mixer.kernel(x)
        assert kernel.shape == (3, 6, mixer.n)
        assert kernel.dtype == torch.float64
        differs = not torch.equal(kernel[0], kernel[1])
        assert differs == (mixer.conditioning != "static")

    def test_kernel_of_a_later_stage(self) -> None:
        mixer, x = build(10, order=2), draw(2, 10, 6)
        assert relative_error(mixer.kernel(x, stage=2), mixer.kernel(x, stage=1)) > 0.1
        with pytest.raises(ValueError, match=r"stage=3 must lie in 1 ... order=2"):
            mixer.kernel(x, stage=3)


class TestContext:
    @pytest.mark.parametrize("options", CONDITIONED, ids=option_id)
    def test_own_input_as_context_changes_nothing(self, options: dict[str, object]) -> None:
        mixer, x = build(12, **options), draw(2, 10, 6)
        assert_close("y", mixer(x, context=x), mixer(x))

    @pytest.mark.parametrize("options", CONDITIONED, ids=option_id)
    def test_the_kernel_comes_from_the_context_alone(self, options: dict[str, object]) -> None:
        mixer, context = build(12, **options), draw(2, 7, 6)
        kernel = mixer.kernel(draw(2, 10, 6), context=context)
        assert_close("h", mixer.kernel(draw(2, 10, 6), context=context), kernel)
        assert relative_error(mixer.kernel(draw(2, 10, 6), context=draw(2, 7, 6)), kernel) > 0.1

    def test_where_the_context_is_padded_does_not_matter(self) -> None:
        """The paper pads on the left, we on the right: a circular shift of u leaves hx unchanged."""
        mixer, x, context = build(12, short_padding="circular"), draw(1, 12, 6), draw(1, 5, 6)
        left = torch.cat((torch.zeros(1, 7, 6, dtype=torch.float64), context), dim=1)
        mask = (torch.arange(12) >= 7)[None]
        assert_close("y", mixer(x, context=left, context_mask=mask), mixer(x, context=context))

    def test_zero_padding_in_time_interpolates_the_spectrum(self) -> None:
        """Every second bin of the doubly long transform is the short one's; between them lies the interpolant."""
        u = draw(3, 8)
        short = reference.transform(u, "dft", "backward")
        long = reference.transform(reference.zero_pad(u, 16), "dft", "backward")
        assert_close("bins", long[:, ::2], short)
        t = torch.arange(8, dtype=torch.float64)
        between = (u[:, None] * torch.polar(torch.ones(()).double(), -torch.pi * (2 * t[:4, None] + 1) * t / 8)).sum(-1)
        assert_close("between", long[:, 1:8:2], between)


class TestResample:
    @pytest.mark.parametrize("grid", ["stretch", "extend"])
    @pytest.mark.parametrize("options", VARIANTS, ids=option_id)
    def test_to_the_same_length_is_the_identity(self, options: dict[str, object], grid: str) -> None:
        mixer, x = build(12, **options), draw(2, 9, 6)
        same = mixer.resample(12, grid=grid)
        assert same is not mixer
        assert torch.equal(same(x), mixer(x))

    def test_stretching_keeps_the_spectrum_per_sequence(self) -> None:
        """A kernel of twice the length holds the same smooth function, with the same low bins."""
        mixer = build(64, conditioning="static")
        long = mixer.resample(256)
        short_f, long_f = mixer.stages[0].static(), long.stages[0].static()
        assert relative_error(long_f[:, :8], short_f[:, :8]) < 0.05

    @pytest.mark.parametrize("boundary", ["circular", "linear"])
    def test_extending_keeps_the_taps(self, boundary: str) -> None:
        mixer = build(16, conditioning="static", boundary=boundary)
        long = mixer.resample(40, grid="extend")
        h, extended = mixer.stages[0].static.filter(), long.stages[0].static.filter()
        half = mixer.n // 2
        assert_close("positive lags", extended[:, :half], h[:, :half])
        assert_close("negative lags", extended[:, -half:], h[:, -half:])
        assert_close("back again", long.resample(16, grid="extend").stages[0].static.filter(), h)

    def test_grid_survives_a_second_resampling(self) -> None:
        mixer = build(16, conditioning="static").resample(32, grid="extend").resample(64)
        assert mixer.filter_grid == 32.0
        assert mixer(draw(1, 64, 6)).shape == (1, 64, 6)

    def test_keeps_dtype_mode_and_frozen_parameters(self) -> None:
        mixer = OrchidMixer(4, 8, dropout=0.5).to(torch.bfloat16).eval()
        mixer.in_proj.requires_grad_(False)
        mixer = mixer.resample(16)
        assert not mixer.in_proj.weight.requires_grad and mixer.out_proj.weight.requires_grad
        assert mixer.out_proj.weight.dtype == torch.bfloat16
        assert not mixer.training
        assert mixer.dropout.p == 0.5


@pytest.mark.parametrize("options", [o for o in VARIANTS if o.get("conditioning") != "static"], ids=option_id)
def test_the_kernel_depends_on_the_data_from_the_start(options: dict[str, object]) -> None:
    """hx is not zero at initialisation, and the spectrum is of order 1 (spec: initialisation)."""
    mixer = create_mixer("orchid", 64, 256, **options)
    static = mixer.stages[0].static()
    total = mixer.stages[0].spectrum(torch.randn(4, 64, 256))
    conditioned = (total - static).abs().square().mean().sqrt()
    assert 0.1 < conditioned < 3
    assert 0.3 < static.abs().square().mean().sqrt() < 3
