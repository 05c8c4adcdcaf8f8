"""Dtypes, autocast, zeros, state and bad input."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import option_id, relative_error
from safetensors.torch import save_file

from orchid import ImplicitFilter, OrchidBlock, OrchidMixer, create_mixer, list_mixers

VARIANTS = [
    {},
    {"conditioning": "cross", "sigma": "tanh"},
    {"conditioning": "static", "residual_conv": True},
    {"transform": "dct", "boundary": "linear"},
    {"order": 2, "short_padding": "circular"},
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_half_precision_modules(options: dict[str, object], dtype: torch.dtype) -> None:
    """Against float64 on the same rounded weights; inputs, projections and gates are rounded, the spectra are not.

    Every output passes five rounded products (projection, short conv, two gates, output), so its error is a few units
    of rounding; ten leave room for the tails.
    """
    mixer = OrchidMixer(16, 64, **options).to(dtype)
    x = torch.randn(2, 50, 16).to(dtype).requires_grad_()
    y = mixer(x)
    y.float().square().mean().backward()
    assert y.dtype == dtype
    assert x.grad is not None and torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in mixer.parameters() if p.numel())
    assert relative_error(y, mixer.double()(x.double())) < 10 * torch.finfo(dtype).eps


def test_spectra_stay_in_float32() -> None:
    """The kernel of a bfloat16 layer is that of its rounded weights, to float32 accuracy where nothing is rounded."""
    mixer = OrchidMixer(8, 256, conditioning="static").bfloat16()
    kernel = mixer.kernel(torch.randn(1, 256, 8).bfloat16())
    assert kernel.dtype == torch.float32
    assert relative_error(kernel, mixer.double().kernel(torch.randn(1, 256, 8).double())) < 1e-5


@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_autocast(options: dict[str, object]) -> None:
    mixer, x = OrchidMixer(16, 64, **options), torch.randn(2, 50, 16)
    mask = torch.rand(2, 50) > 0.2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = mixer(x, mask)
        kernel, matrix = mixer.kernel(x, mask), None
        if mixer.order == 1:
            matrix = mixer.mixing_matrix(x, mask)
    y.float().square().mean().backward()
    assert y.dtype == torch.bfloat16
    assert kernel.dtype == torch.float32
    assert matrix is None or torch.isfinite(matrix).all()
    assert relative_error(y[mask], mixer(x, mask)[mask]) < 10 * torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("transform", ["dft", "dct"])
@pytest.mark.parametrize(
    ("conditioning", "sigma"),
    [("phase", "identity"), *(("cross", s) for s in ("identity", "tanh", "sigmoid", "softsign", "softshrink"))],
)
def test_zero_input_has_finite_gradients(conditioning: str, transform: str, sigma: str) -> None:
    mixer = OrchidMixer(4, 16, conditioning=conditioning, transform=transform, sigma=sigma)
    torch.nn.init.zeros_(mixer.in_proj.bias)
    x = torch.zeros(2, 16, 4, requires_grad=True)
    mixer(x).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in mixer.parameters())


@pytest.mark.parametrize("scale", [1e-20, 1e6])  # the output grows with the fifth power under "cross"
@pytest.mark.parametrize("conditioning", ["phase", "cross"])
def test_extreme_magnitudes_stay_finite(conditioning: str, scale: float) -> None:
    mixer = OrchidMixer(4, 32, conditioning=conditioning)
    x = (torch.randn(2, 32, 4) * scale).requires_grad_()
    y = mixer(x)
    assert torch.isfinite(y).all()
    assert torch.isfinite(torch.autograd.grad(y.sum(), x)[0]).all()


@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_state_is_real_parameters_and_no_buffers(options: dict[str, object]) -> None:
    mixer = OrchidMixer(4, 16, **options)
    assert not list(mixer.buffers())
    assert not any(p.is_complex() for p in mixer.parameters())


@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_every_parameter_gets_a_gradient(options: dict[str, object]) -> None:
    mixer = OrchidMixer(4, 16, **options)
    mixer(torch.randn(2, 16, 4)).square().sum().backward()
    idle = [n for n, p in mixer.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not idle


def test_per_sample_gradients() -> None:
    """The layer composes with torch.func: vmap of grad equals a loop."""
    mixer, x = OrchidMixer(4, 8), torch.randn(3, 8, 4)
    parameters = dict(mixer.named_parameters())

    def loss(parameters: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(mixer, parameters, (row[None],)).square().sum()

    together = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for index, row in enumerate(x):
        alone = torch.func.grad(loss)(parameters, row)
        for key, gradient in alone.items():
            torch.testing.assert_close(together[key][index], gradient, rtol=1e-4, atol=1e-5)


def test_a_mixer_takes_numpy_integers() -> None:
    assert OrchidMixer(np.int64(4), np.int64(8)).max_length == 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_in_half_precision(dtype: torch.dtype) -> None:
    """Sums over batch and time are wide: no parameter's gradient is worse than twenty roundings of the dtype."""
    mixer = OrchidMixer(16, 64).to(dtype)
    x, upstream = torch.randn(4, 64, 16).to(dtype), torch.randn(4, 64, 16).to(dtype)
    names, parameters = zip(*mixer.named_parameters(), strict=True)
    rounded = torch.autograd.grad(mixer(x), parameters, upstream)
    mixer.double()
    exact = torch.autograd.grad(mixer(x.double()), list(mixer.parameters()), upstream.double())
    for key, actual, expected in zip(names, rounded, exact, strict=True):
        assert relative_error(actual, expected) < 20 * torch.finfo(dtype).eps, key


def test_meta_device_then_reset() -> None:
    """Every leaf with parameters can draw them anew: what deferred initialisation needs."""
    with torch.device("meta"):
        mixer = OrchidMixer(8, 16, residual_conv=True)
    mixer.to_empty(device="cpu")
    for parameter in mixer.parameters():
        parameter.data.fill_(float("nan"))
    for module in mixer.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert torch.isfinite(mixer(torch.randn(2, 16, 8))).all()


def test_checkpoint_is_bit_exact_in_a_new_process(tmp_path: Path) -> None:
    mixer, x = OrchidMixer(8, 32, conditioning="cross", residual_conv=True), torch.randn(2, 20, 8)
    with torch.no_grad():
        y = mixer(x)
    save_file(mixer.state_dict() | {"test.x": x, "test.y": y}, tmp_path / "layer.safetensors")
    code = """
import sys, torch
from safetensors.torch import load_file
from orchid import OrchidMixer
state = load_file(sys.argv[1])
x, y = state.pop("test.x"), state.pop("test.y")
mixer = OrchidMixer(8, 32, conditioning="cross", residual_conv=True)
mixer.load_state_dict(state)
assert torch.equal(mixer(x), y), "not bit-exact"
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "layer.safetensors")], check=True)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"max_length": 0}, r"max_length=0 must be an integer of at least 1"),
            ({"max_length": 8.0}, r"max_length=8.0 must be an integer"),
            ({"d_model": 0}, r"d_model=0 must be"),
            ({"order": 0}, r"order=0 must be"),
            ({"conditioning": "none"}, r"conditioning='none' is not one of 'phase', 'cross', 'static'"),
            ({"transform": "fft"}, r"transform='fft' is not one of 'dft', 'dct'"),
            ({"norm": "forward"}, r"norm='forward' is not one of"),
            ({"boundary": "zero"}, r"boundary='zero' is not one of"),
            ({"kernel_size": 4}, r"kernel_size=4 must be odd"),
            ({"kernel_size": 0}, r"kernel_size=0 must be"),
            ({"spatial_layers": -1}, r"spatial_layers=-1 must be"),
            ({"spectral_layers": -1}, r"spectral_layers=-1 must be"),
            ({"sigma": "relu", "conditioning": "cross"}, r"sigma='relu' is not one of"),
            ({"sigma": "tanh"}, r"sigma='tanh' belongs to conditioning='cross'"),
            ({"short_padding": "valid"}, r"short_padding='valid' is not one of"),
            ({"filter_embedding": 4}, r"filter_embedding=4 must be odd"),
            ({"filter_width": 0}, r"filter_width=0 must be"),
            ({"filter_grid": -1.0}, r"filter_grid=-1.0 must be"),
            ({"filter_grid": "16"}, r"filter_grid='16' must be a positive number"),
            ({"filter_grid": float("inf")}, r"filter_grid=inf must be a positive number"),
            ({"dropout": "a"}, r"dropout='a' must lie in"),
            ({"residual_conv": "False"}, r"residual_conv='False' must be True or False"),
            ({"dropout": 1.0}, r"dropout=1.0 must lie in \[0, 1\)"),
            (
                {"backend": "triton", "spectral_layers": 2},
                r"backend='triton' cannot serve: the kernels support spatial_layers and spectral_layers=\(1, 1\)",
            ),
            ({"backend": "triton", "kernel_size": 7}, r"the kernels support kernel_size 3 or 5, not 7"),
            ({"backend": "cuda"}, r"backend='cuda' is not one of"),
        ],
    )
    def test_options(self, options: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            OrchidMixer(**{"d_model": 4, "max_length": 8, **options})

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            ({"x": torch.zeros(2, 9, 4)}, r"x has length 9, longer than max_length=8"),
            ({"x": torch.zeros(2, 8, 5)}, r"x has shape \(2, 8, 5\); expected \(batch, length, d_model=4\)"),
            ({"x": torch.zeros(8, 4)}, r"x has shape \(8, 4\); expected"),
            ({"x": torch.zeros(2, 0, 4)}, r"at least 1"),
            ({"x": torch.zeros(0, 8, 4)}, r"at least 1"),
            ({"x": torch.zeros(2, 8, 4, dtype=torch.long)}, r"x has dtype torch.int64; expected a floating point"),
            ({"x": torch.zeros(2, 8, 4).double()}, r"x has dtype torch.float64; expected torch.float32"),
            ({"x": [[1.0]]}, r"x is a list; expected a tensor"),
            ({"mask": [[True]]}, r"mask is a list; expected a tensor"),
            ({"context": torch.zeros(())}, r"context has shape \(\); expected \(batch, length, d_model=4\)"),
            ({"mask": torch.ones(2, 8)}, r"mask has dtype torch.float32; expected torch.bool"),
            ({"mask": torch.ones(2, 7, dtype=torch.bool)}, r"mask has shape \(2, 7\); expected \(2, 8\)"),
            ({"mask": torch.ones(8, dtype=torch.bool)}, r"mask has shape \(8,\); expected \(2, 8\)"),
            ({"mask": torch.ones(1, 8, dtype=torch.bool)}, r"mask has shape \(1, 8\); expected \(2, 8\)"),
            ({"context": torch.zeros(2, 9, 4)}, r"context has length 9, longer than max_length=8"),
            ({"context": torch.zeros(2, 3, 6)}, r"context has shape \(2, 3, 6\)"),
            ({"context": torch.zeros(1, 3, 4)}, r"context has batch 1; expected that of x, 2"),
            (
                {"context": torch.zeros(2, 3, 4), "context_mask": torch.ones(2, 8, dtype=torch.bool)},
                r"context_mask has shape \(2, 8\); expected \(2, 3\)",
            ),
            ({"context_mask": torch.ones(2, 8, dtype=torch.bool)}, r"context_mask was given without context"),
        ],
    )
    def test_inputs(self, inputs: dict[str, torch.Tensor], message: str) -> None:
        mixer = OrchidMixer(4, 8)
        with pytest.raises(ValueError, match=message):
            mixer(**{"x": torch.zeros(2, 8, 4), **inputs})

    def test_context_with_a_static_kernel(self) -> None:
        mixer = OrchidMixer(4, 8, conditioning="static")
        with pytest.raises(ValueError, match="conditioning='static' has no kernel to condition"):
            mixer(torch.zeros(1, 8, 4), context=torch.zeros(1, 8, 4))

    def test_mixing_matrix(self) -> None:
        with pytest.raises(ValueError, match="order=2"):
            OrchidMixer(4, 8, order=2).mixing_matrix(torch.zeros(1, 8, 4))
        with pytest.raises(ValueError, match=r"channel=4 must lie in 0 ... 3"):
            OrchidMixer(4, 8).mixing_matrix(torch.zeros(1, 8, 4), channel=4)
        with pytest.raises(ValueError, match=r"channel=1.0 must be an integer"):
            OrchidMixer(4, 8).mixing_matrix(torch.zeros(1, 8, 4), channel=1.0)
        with pytest.raises(ValueError, match=r"stage=1.0 must be an integer"):
            OrchidMixer(4, 8).kernel(torch.zeros(1, 8, 4), stage=1.0)

    def test_resample(self) -> None:
        with pytest.raises(ValueError, match="max_length=0"):
            OrchidMixer(4, 8).resample(0)
        with pytest.raises(ValueError, match="grid='shrink' is not one of"):
            OrchidMixer(4, 8).resample(8, grid="shrink")

    def test_implicit_filter(self) -> None:
        with pytest.raises(ValueError, match="max_length=0"):
            ImplicitFilter(4, 0)
        with pytest.raises(ValueError, match="embedding=2 must be odd"):
            ImplicitFilter(4, 8, embedding=2)
        with pytest.raises(ValueError, match="grid=0 must be a positive number"):
            ImplicitFilter(4, 8, grid=0)

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (torch.zeros(2, 8, 5), r"x has shape \(2, 8, 5\); expected \(batch, length, d_model=4\)"),
            (torch.zeros(2, 9, 4), r"x has length 9, longer than max_length=8"),
            (torch.zeros(2, 8, 4).double(), r"x has dtype torch.float64; expected torch.float32"),
            (torch.zeros(2, 8, 4, dtype=torch.long), r"x has dtype torch.int64"),
        ],
    )
    def test_block(self, x: torch.Tensor, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            OrchidBlock(4, 8)(x)

    def test_what_is_no_mixer(self) -> None:
        with pytest.raises(ValueError, match=r"mixer=None must be a name from list_mixers\(\) or a module"):
            OrchidBlock(4, 8, mixer=None)


@pytest.mark.parametrize("name", list_mixers())
def test_shapes_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        assert create_mixer(name, 8, 16)(torch.zeros(2, 16, 8)).shape == (2, 16, 8)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # the library's own rules
@pytest.mark.parametrize(
    "options",
    [{}, {"conditioning": "cross"}, {"transform": "dct", "order": 2}, {"short_padding": "circular"}],
    ids=option_id,
)
def test_forward_mode_derivatives(options: dict[str, object]) -> None:
    """Of the input and of every parameter: the same number as by the backward pass."""
    mixer, x = OrchidMixer(3, 6, residual_conv=True, **options).double(), torch.randn(2, 5, 3).double()
    inputs = {"x": x, **{name: p.detach() for name, p in mixer.named_parameters()}}
    along = {name: torch.randn_like(t) for name, t in inputs.items()}

    def output(given: dict[str, torch.Tensor]) -> torch.Tensor:
        return torch.func.functional_call(mixer, {k: v for k, v in given.items() if k != "x"}, (given["x"],))

    y, tangent = torch.func.jvp(output, (inputs,), (along,))
    weight = torch.randn_like(y)
    (grads,) = torch.func.vjp(output, inputs)[1](weight)
    backward = sum((grads[name] * along[name]).sum() for name in inputs)
    torch.testing.assert_close((tangent * weight).sum(), backward)


def test_a_frozen_layer_told_to_train_does() -> None:
    mixer = OrchidMixer(4, 8).freeze().requires_grad_(True)
    mixer(torch.randn(2, 8, 4)).square().sum().backward()
    assert all(p.grad is not None for p in mixer.parameters())
