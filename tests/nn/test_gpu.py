"""The layer on a CUDA device, by whatever path "auto" takes: against the CPU in float64, under autocast, captured."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from helpers import assert_close, option_id, relative_error

from orchid import OrchidBlock, OrchidMixer, OrchidMixer2d
from orchid.recipes import get_recipe
from orchid.train.engine import Engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

VARIANTS = [
    {},
    {"conditioning": "cross", "sigma": "tanh"},
    {"conditioning": "static", "residual_conv": True},
    {"transform": "dct"},
    {"order": 2, "boundary": "linear"},
    {"short_padding": "circular"},
]


@pytest.fixture(autouse=True)
def full_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
@pytest.mark.parametrize("length", [63, 128])
def test_against_the_cpu_in_float64(options: dict[str, object], length: int) -> None:
    mixer = OrchidMixer(16, 128, **options)
    x, mask = torch.randn(3, length, 16), torch.rand(3, length) > 0.2
    upstream = torch.randn(3, length, 16) * mask[..., None]

    def run(device: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        layer = mixer.to(device, dtype)
        leaf = x.to(device, dtype).requires_grad_()
        y = layer(leaf, mask.to(device)) * mask[..., None].to(device)
        parameters = dict(layer.named_parameters())
        gradients = torch.autograd.grad(y, [leaf, *parameters.values()], upstream.to(device, dtype))
        return {"y": y} | dict(zip(["x", *parameters], gradients, strict=True))

    fast, slow = run("cuda", torch.float32), run("cpu", torch.float64)
    for key, expected in slow.items():
        assert_close(key, fast[key].cpu(), expected, 2e-5 if key == "y" else 2e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_autocast(options: dict[str, object], dtype: torch.dtype) -> None:
    mixer, x = OrchidMixer(16, 128, **options).cuda(), torch.randn(3, 100, 16, device="cuda")
    with torch.autocast("cuda", dtype=dtype):
        y = mixer(x)
    y.float().square().mean().backward()
    assert y.dtype == dtype
    assert all(torch.isfinite(p.grad).all() for p in mixer.parameters())
    assert relative_error(y.cpu(), mixer(x).cpu()) < 10 * torch.finfo(dtype).eps


# Layers, and the blocks and images whose norms, MLPs and transforms have kernels of their own.
CAPTURED: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...], torch.dtype]] = {
    **{
        option_id(options): (partial(OrchidMixer, 16, 128, **options), (3, 128, 16), torch.float32)
        for options in VARIANTS
    },
    "block": (partial(OrchidBlock, 64, 128, blocks=2), (32, 128, 64), torch.bfloat16),
    "gated block": (partial(OrchidBlock, 64, 128, blocks=2, mlp="gated"), (32, 128, 64), torch.bfloat16),
    "small images": (partial(OrchidMixer2d, 16, 8, 8), (32, 8, 8, 16), torch.bfloat16),
    "images": (partial(OrchidMixer2d, 16, 16, 16), (3, 16, 16, 16), torch.bfloat16),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_cuda_graph(name: str) -> None:
    """No synchronisation and no copy from the host: forward and backward replay."""
    build, shape, dtype = CAPTURED[name]
    module, x = build().to("cuda", dtype), torch.randn(shape, device="cuda", dtype=dtype)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            module(x).square().sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    module.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(x)
        y.square().sum().backward()
        y = y.detach()  # what is kept of the graph would keep its stream too, and the library warns of two
    x.copy_(torch.randn_like(x))
    graph.replay()
    replayed = {key: parameter.grad.clone() for key, parameter in module.named_parameters()}
    module.zero_grad(set_to_none=True)
    again = module(x)
    again.square().sum().backward()
    # the library may take other products where it captures: sums in another order, rounded once to the dtype
    tolerance = 4 * torch.finfo(dtype).eps
    assert_close("y", y.cpu().float(), again.cpu().float(), tolerance)
    for key, parameter in module.named_parameters():
        assert_close(key, replayed[key].cpu().float(), parameter.grad.cpu().float(), tolerance)


def test_the_engine_resumes_on_a_gpu(tmp_path) -> None:
    def experiment():
        tiny = get_recipe("recall/demo-orchid").tiny()
        tiny.model.dropout = 0.1
        return tiny

    whole = Engine(experiment(), tmp_path / "whole").train().result
    assert whole["hardware"]["device"] == "cuda"
    Engine(experiment(), tmp_path / "cut", time_limit=0.0).train()
    cut = Engine(experiment(), tmp_path / "cut", resume=True).train().result
    assert cut["history"][-1]["train/loss"] == pytest.approx(whole["history"][-1]["train/loss"], abs=1e-6)
