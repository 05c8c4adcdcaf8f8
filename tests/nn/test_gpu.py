"""The layer on a CUDA device, by whatever path "auto" takes: against the CPU in float64, under autocast, captured."""

import pytest
import torch
from helpers import assert_close, option_id, relative_error

from orchid import OrchidMixer
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


@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_cuda_graph(options: dict[str, object]) -> None:
    """No synchronisation and no copy from the host: forward and backward replay."""
    mixer, x = OrchidMixer(16, 128, **options).cuda(), torch.randn(3, 128, 16, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            mixer(x).square().sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    mixer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = mixer(x)
        y.square().sum().backward()
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert_close("y", y.cpu(), mixer(x).cpu(), 1e-6)


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
