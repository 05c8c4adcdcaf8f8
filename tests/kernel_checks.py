"""What the tests of the fused kernels share: layers that take them, and comparisons with the reference."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from helpers import assert_close, reference_mixer, relative_error

from orchid import OrchidMixer

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def build(width: int = 2, length: int = 16, **options: object) -> OrchidMixer:
    torch.manual_seed(0)
    if DEVICE == "cpu":  # the interpreter takes its time for every output of the filter's network
        options = {"filter_width": 16, **options}
    mixer = OrchidMixer(width, length, backend="triton", **options)
    torch.nn.init.normal_(mixer.short_conv.bias)
    return mixer.to(DEVICE)


def in_chunks(monkeypatch: pytest.MonkeyPatch, path: ModuleType, elements: int) -> None:
    """Let a path take so many elements at a time, forward and backward."""
    from orchid.ops.kernels import passes

    for limits in (passes.FORWARD, passes.BACKWARD):
        monkeypatch.setitem(limits, path, elements)


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


# Float32 against a float64 reference. Gradients of taps and biases sum over batch and length.
TOLERANCE = 1e-5


def check(
    mixer: OrchidMixer,
    x: torch.Tensor,
    mask: torch.Tensor | None = None,
    context: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    tolerance: float = TOLERANCE,
) -> None:
    """Compare outputs at real tokens, and the gradients of a random sum of them."""
    inputs = {"x": x, **({} if context is None else {"context": context})}
    weight = torch.randn(x.shape, dtype=torch.float64)
    if mask is not None:
        weight *= mask[..., None].cpu()
    results = []
    for reference in (False, True):
        layer = OrchidMixer(mixer.d_model, mixer.max_length, **{**mixer._options(), "backend": "torch"}).double()
        layer.load_state_dict(mixer.state_dict())
        layer = layer if reference else mixer
        leaves = {
            name: (t.double().cpu() if reference else t).detach().clone().requires_grad_() for name, t in inputs.items()
        }
        masks = [m if m is None or not reference else m.cpu() for m in (mask, context_mask)]
        call = reference_mixer if reference else OrchidMixer.forward
        y = call(layer, leaves["x"], masks[0], leaves.get("context"), masks[1])
        names = {**leaves, **dict(layer.named_parameters())}
        grads = torch.autograd.grad((y * weight.to(y.device, y.dtype)).sum(), list(names.values()))
        real = y if mask is None else y[mask.to(y.device)]
        results.append({"y": real, **dict(zip(names, grads, strict=True))})
    ours, theirs = results
    for name, expected in theirs.items():
        assert_close(name, ours[name].cpu(), expected.to(ours[name].dtype), tolerance)


def without_interpreter(script: str, folder: Path, *arguments: str) -> str:
    """Run a script of ``tests/ops`` whose kernels are compiled, and return what it printed."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(folder)}
    command = [sys.executable, str(Path(__file__).parent / "ops" / script), *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout
