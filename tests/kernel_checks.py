"""What the tests of the fused kernels share: layers that take them, and how far off half precision may be."""

import torch
from helpers import relative_error

from orchid import OrchidMixer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def build(width: int = 2, length: int = 16, **options: object) -> OrchidMixer:
    torch.manual_seed(0)
    mixer = OrchidMixer(width, length, backend="triton", **options)
    torch.nn.init.normal_(mixer.short_conv.bias)
    return mixer.to(DEVICE)


def assert_at_most_twice_as_far_off(
    mixer: OrchidMixer, x: torch.Tensor, mask: torch.Tensor | None = None, context: torch.Tensor | None = None
) -> None:
    """Compare errors against float64 with those of the torch backend in the same precision: output, every gradient."""
    options = {**mixer._options(), "backend": "torch"}
    plain = OrchidMixer(mixer.d_model, mixer.max_length, **options).to(DEVICE, x.dtype)
    exact = OrchidMixer(mixer.d_model, mixer.max_length, **options).double()
    results, weight = [], torch.randn(x.shape, dtype=torch.float64)
    for layer in (mixer, plain, exact):
        layer.load_state_dict(mixer.state_dict())
        like = layer.in_proj.weight
        leaves = {"x": x, **({} if context is None else {"context": context})}
        leaves = {name: t.to(like).detach().requires_grad_() for name, t in leaves.items()}
        here = None if mask is None else mask.to(like.device)
        y = layer(leaves["x"], here, leaves.get("context"))
        y = y if here is None else y * here[..., None]
        names = {**leaves, **dict(layer.named_parameters())}
        grads = torch.autograd.grad((y * weight.to(y)).sum(), list(names.values()))
        results.append({"y": y, **dict(zip(names, grads, strict=True))})
    ours, torchs, expected = map(pooled, results, [results[2]] * 3)
    for name, value in expected.items():
        error, allowed = relative_error(ours[name], value), relative_error(torchs[name], value)
        assert error <= 2 * allowed, f"{name}: {error:.2e}, torch {allowed:.2e}"


def pooled(tensors: dict[str, torch.Tensor], scales: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Put small tensors together, each over its size: the ratio of two random errors needs many of them."""
    large = {name: t.detach().double().cpu() for name, t in tensors.items()}
    small = [name for name, t in large.items() if t.numel() < 50]
    parts = [large.pop(name).flatten() / scales[name].detach().double().square().mean().sqrt() for name in small]
    return {**large, "small": torch.cat(parts)}
