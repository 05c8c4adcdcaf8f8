"""Rows that repeat themselves: their spectra have bins of nothing but rounding, which gradients must not follow."""

import pytest
import torch
from helpers import relative_error
from kernel_checks import DEVICE, build

from orchid import OrchidMixer

pytest.importorskip("triton", reason="needs Triton")

pytestmark = pytest.mark.usefixtures("few_programs")


@pytest.mark.parametrize(
    ("n", "batch", "period"),
    [(64, 26, 8), (256, 3, 16), (8192, 1, 64)],
    ids=["one product", "two products", "three passes"],
)
def test_the_gradient_of_the_input(n: int, batch: int, period: int) -> None:
    """At most twice as far off as the torch path's; followed, such bins make it 15 to 30 times as far."""
    width = 4 if n < 8192 else 2
    mixer = build(width, n, short_padding="circular").bfloat16()
    x = torch.randn(batch, period, width, device=DEVICE).repeat(1, n // period, 1).bfloat16()
    weight, grads = torch.randn(x.shape, dtype=torch.float64), []
    options = {**mixer._options(), "backend": "torch"}
    for layer in (mixer, OrchidMixer(width, n, **options).to(x), OrchidMixer(width, n, **options).double()):
        layer.load_state_dict(mixer.state_dict())
        given = x.to(layer.short_conv.weight).detach().requires_grad_()
        grads += torch.autograd.grad((layer(given) * weight.to(given)).sum(), given)
    ours, torchs, exact = (grad.cpu().double() for grad in grads)
    assert relative_error(ours, exact) <= 2 * relative_error(torchs, exact)
