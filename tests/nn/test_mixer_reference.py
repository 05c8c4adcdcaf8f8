"""The layer against the O(L^2) reference: output and the gradient of the input and of every parameter."""

import itertools

import pytest
import torch
from helpers import TOLERANCE, assert_close, option_id, reference_mixer

from orchid import OrchidMixer

OPTIONS = [
    {},
    {"conditioning": "cross"},
    {"conditioning": "static"},
    {"transform": "dct"},
    {"transform": "dct", "conditioning": "cross"},
    {"transform": "dct", "conditioning": "static", "boundary": "linear"},
    {"boundary": "linear"},
    {"boundary": "linear", "conditioning": "cross"},
    {"norm": "backward"},
    {"norm": "backward", "transform": "dct"},
    {"kernel_size": 5},
    {"kernel_size": 1},
    {"spatial_layers": 2, "spectral_layers": 0},
    {"spatial_layers": 0, "spectral_layers": 2},
    {"spatial_layers": 3, "spectral_layers": 3},
    {"spatial_layers": 0, "spectral_layers": 0},
    {"conditioning": "cross", "spatial_layers": 2, "spectral_layers": 2},
    *({"conditioning": "cross", "sigma": s} for s in ("tanh", "sigmoid", "softsign", "softshrink")),
    {"conditioning": "cross", "transform": "dct", "sigma": "tanh"},
    {"short_padding": "same"},
    {"short_padding": "circular"},
    {"short_padding": "circular", "conditioning": "cross", "kernel_size": 5},
    {"residual_conv": True},
    {"residual_conv": True, "boundary": "linear", "transform": "dct"},
    {"order": 2},
    {"order": 3, "conditioning": "cross", "short_padding": "circular"},
    {"order": 2, "transform": "dct", "boundary": "linear", "residual_conv": True},
    {"filter_embedding": 1, "filter_width": 8},
    {"filter_embedding": 9},
    {"filter_grid": 5.0},
]


def compare(
    mixer: OrchidMixer,
    length: int,
    *,
    mask: torch.Tensor | None = None,
    context: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> None:
    """Compare in ``dtype`` against the float64 reference; valid positions only."""
    batch = 2 if mask is None else mask.shape[0]
    x = torch.randn(batch, length, mixer.d_model, dtype=torch.float64)
    upstream = torch.randn(x.shape, dtype=torch.float64)
    if mask is not None:
        upstream = upstream * mask[..., None]

    def run(function, cast: torch.dtype) -> dict[str, torch.Tensor]:
        mixer.to(cast)
        leaf = x.detach().to(cast).requires_grad_()
        side = None if context is None else context.detach().to(cast).requires_grad_()
        y = function(leaf, mask, side, context_mask)
        if mask is not None:
            y = y * mask[..., None]
        leaves = {"x": leaf, **dict(mixer.named_parameters())}
        if side is not None:
            leaves["context"] = side
        used = {k: p for k, p in leaves.items() if p.numel()}
        gradients = torch.autograd.grad(y, list(used.values()), upstream.to(cast))
        return {"y": y} | {f"grad {k}": g for k, g in zip(used, gradients, strict=True)}

    mixer.double()
    if dtype == torch.float32:
        mixer.float()  # both sides see the rounded parameters
    fast = run(mixer, dtype)
    slow = run(lambda *inputs: reference_mixer(mixer, *inputs), torch.float64)
    for key, expected in slow.items():
        # A parameter's gradient sums over the batch and the length, and cancels: a further factor of ten.
        assert_close(key, fast[key], expected, TOLERANCE[dtype] * (1 if key == "y" else 10))


@pytest.mark.parametrize("options", OPTIONS, ids=option_id)
@pytest.mark.parametrize(("length", "max_length"), [(12, 12), (7, 13)])
def test_every_option(options: dict[str, object], length: int, max_length: int) -> None:
    compare(OrchidMixer(4, max_length, **options), length)


@pytest.mark.parametrize("options", OPTIONS, ids=option_id)
def test_every_option_masked(options: dict[str, object]) -> None:
    mask = torch.tensor([[1, 1, 0, 1, 1, 1, 1, 0, 0], [0, 1, 1, 0, 1, 0, 1, 1, 1], [0] * 9, [1] * 9], dtype=torch.bool)
    compare(OrchidMixer(3, 10, **options), 9, mask=mask)


@pytest.mark.parametrize("options", [o for o in OPTIONS if o.get("conditioning") != "static"], ids=option_id)
def test_every_option_with_context(options: dict[str, object]) -> None:
    context = torch.randn(2, 6, 4, dtype=torch.float64)
    context_mask = torch.tensor([[1, 1, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1]], dtype=torch.bool)
    compare(OrchidMixer(4, 11, **options), 9, context=context, context_mask=context_mask)


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 127, 129])
@pytest.mark.parametrize(
    "options",
    [
        {"transform": t, "boundary": b, "conditioning": c, "short_padding": p}
        for t, b, c, p in itertools.product(
            ("dft", "dct"), ("circular", "linear"), ("phase", "cross"), ("causal", "circular")
        )
    ],
    ids=option_id,
)
def test_lengths(length: int, options: dict[str, object]) -> None:
    compare(OrchidMixer(2, length, **options), length)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_thousand_tokens(dtype: torch.dtype) -> None:
    compare(OrchidMixer(2, 1000), 1000, dtype=dtype)


@pytest.mark.parametrize("options", OPTIONS, ids=option_id)
def test_float32(options: dict[str, object]) -> None:
    compare(OrchidMixer(4, 24, **options), 20, dtype=torch.float32)


@pytest.mark.parametrize("options", [{}, {"conditioning": "cross"}, {"transform": "dct"}, {"order": 2}], ids=option_id)
def test_gradcheck(options: dict[str, object]) -> None:
    mixer = OrchidMixer(2, 5, filter_width=3, residual_conv=True, **options).double()
    x = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1]], dtype=torch.bool)
    names, parameters = zip(*mixer.named_parameters(), strict=True)

    def function(x: torch.Tensor, *values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(mixer, dict(zip(names, values, strict=True)), (x, mask))

    assert torch.autograd.gradcheck(function, (x, *parameters))


def test_strided_input() -> None:
    mixer = OrchidMixer(4, 8).double()
    x = torch.randn(2, 4, 16, dtype=torch.float64)[:, :, ::2].transpose(1, 2)
    assert_close("y", mixer(x), mixer(x.contiguous()))
