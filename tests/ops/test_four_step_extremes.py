"""Rows of one kernel at their limits: the Nyquist bin, float16's range, a sample beside one beyond float32's."""

from collections.abc import Iterator

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE, build

from orchid import OrchidMixer

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels.four_step import path as four_step
from orchid.ops.kernels.operands import Decay, Static

pytestmark = pytest.mark.usefixtures("few_programs")


def plain(conditioning: str, kernel_size: int) -> OrchidMixer:
    """Return a layer of three channels whose streams are their inputs, each from another one."""
    mixer = build(3, 256, conditioning=conditioning, kernel_size=kernel_size)
    ones = torch.eye(3, device=DEVICE)
    with torch.no_grad():
        mixer.in_proj.weight.copy_(torch.cat([ones.roll(-i, 1) for i in (0, 2, 1)]))
        mixer.out_proj.weight.copy_(ones)
        for bias in (mixer.in_proj.bias, mixer.short_conv.bias, mixer.out_proj.bias):
            bias.zero_()
        here = torch.arange(kernel_size, device=DEVICE) == kernel_size - 1
        mixer.short_conv.weight.copy_(here.to(mixer.short_conv.weight).expand_as(mixer.short_conv.weight))
        for name, taps in mixer.named_parameters():
            if "conditioning" in name and "spectral" not in name:
                taps.copy_(here.to(taps).expand_as(taps))
    return mixer.bfloat16()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """See to it that a test goes through the kernels, forward and backward."""
    calls = set()
    for name in ("write", "gradients"):
        original = getattr(four_step, name)
        monkeypatch.setattr(four_step, name, lambda *given, f=original: (calls.add(f), f(*given))[1])
    yield
    assert len(calls) == 2


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("conditioning", ["phase", "cross"])
def test_the_nyquist_bin(conditioning: str) -> None:
    """Rows that alternate have little else: what it gives to its neighbours and takes from them, tap by tap.

    Streams, their convolutions' gradients, what is summed of them and the result are rounded to bfloat16, 2^-9 of each
    number at most, and cancel by half: 2^-6. Any of the bin's terms missing is an error of 4e-2 or more.
    """
    mixer = plain(conditioning, 5)
    alternating = 1 - 2 * (torch.arange(256) % 2).float()[:, None]
    x, dy = (alternating + share * torch.randn(2, 256, 3) for share in (0.3, 1.0))
    results = []
    for backend, dtype, device in (("triton", torch.bfloat16, DEVICE), ("torch", torch.float64, "cpu")):
        layer = OrchidMixer(3, 256, **{**mixer._options(), "backend": backend}).to(device, dtype)
        layer.load_state_dict(mixer.state_dict())
        leaf = x.bfloat16().to(device, dtype).requires_grad_()
        names = {"x": leaf, **{n: p for n, p in layer.named_parameters() if "conditioning" in n}}
        y = layer(leaf)
        grads = torch.autograd.grad((y * dy.to(y)).sum(), list(names.values()))
        results.append({"y": y, **dict(zip(names, grads, strict=True))})
    ours, expected = results
    for name, value in expected.items():
        taps = range(value.shape[-1]) if "spectral" in name else [slice(None)]
        for tap in taps:
            assert relative_error(ours[name][..., tap].cpu(), value[..., tap]) < 2**-6, f"{name}, {tap}"


@pytest.mark.parametrize("n", [4096, 8192])
def test_a_kernel_that_aligns_all_bins_stays_in_range(n: int) -> None:
    """A row of ones and minus ones, turned by an all-pass kernel into one number sqrt(n) times as large."""
    signs = torch.sign(torch.randn(n, dtype=torch.float64))
    spectrum = torch.fft.rfft(signs)
    h = torch.where(spectrum.abs() > 0, spectrum.conj() / spectrum.abs(), 1)
    h_f = torch.view_as_real(h).float()[None].contiguous().to(DEVICE)
    kernel = Static(None, None, torch.zeros(1, device=DEVICE), h_f, n, Decay(1.0, 1.0, 1.0, 1.0, 1.0), True)
    rows = four_step.static_rows(kernel, h_f, 0, 1)
    u = signs.bfloat16().view(1, 1, n).to(DEVICE)
    y = torch.empty_like(u)
    four_step.write_plus_conv(n, rows, u, torch.zeros_like(u), y)
    expected = torch.fft.irfft(spectrum * torch.view_as_complex(h_f[0].double().cpu()), n=n)
    assert expected.abs().max() > 0.75 * n**0.5
    assert relative_error(y.flatten().cpu(), expected) < 2**-8
    du, dstatic = four_step.conv_gradients(n, rows, u, u.flip(2).roll(1, 2).contiguous())
    assert du.isfinite().all() and dstatic.isfinite().all() and du.abs().max() > 0.75 * n**0.5


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's, of what overflows
def test_a_sample_beyond_float32_leaves_its_neighbour_alone() -> None:
    """conj(key) query of 1e19 overflows; two samples share a tile."""
    mixer, x = plain("cross", 3), torch.randn(2, 256, 3, device=DEVICE)
    clean = mixer(x.bfloat16())
    x[1] *= torch.tensor([1e19, 1e-19, 1e-19], device=DEVICE)
    x = x.bfloat16().requires_grad_()
    y = mixer(x)
    assert torch.equal(y[0], clean[0])
    assert torch.autograd.grad(y[0].float().sum(), x)[0][0].isfinite().all()
