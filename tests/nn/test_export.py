"""The compilers and exporters of PyTorch give what eager gives."""

import io
import warnings

import pytest
import torch
from helpers import assert_close, option_id

from orchid import OrchidMixer
from orchid.models.vit import OrchidViT

VARIANTS = [
    {},
    {"conditioning": "cross"},
    {"conditioning": "static", "residual_conv": True},
    {"transform": "dct"},
    {"order": 2, "boundary": "linear"},
    {"short_padding": "circular"},
]


# Inductor and the exporters warn about complex tensors and about their own deprecations; none of it is ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    """Forget what other tests have compiled: eight variants of a function are the compiler's limit."""
    torch.compiler.reset()


@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_compile_fullgraph(options: dict[str, object]) -> None:
    """One graph without breaks, forward and backward, with a mask."""
    mixer = OrchidMixer(8, 32, **options)
    compiled = torch.compile(mixer, fullgraph=True, backend="aot_eager")
    x, mask = torch.randn(2, 24, 8), torch.rand(2, 24) > 0.2
    for function in (mixer, compiled):
        mixer.zero_grad()
        y = function(x, mask)
        y.square().sum().backward()
        gradients = {n: p.grad for n, p in mixer.named_parameters()}
        if function is mixer:
            expected = y, gradients
    assert_close("y", y, expected[0])
    for key, gradient in gradients.items():
        assert_close(key, gradient, expected[1][key], 1e-4)


@pytest.mark.parametrize("mixer", ["orchid", "orchid-2d"])
def test_compile_fullgraph_under_autocast(mixer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As training does it. Asking whether a device has autocast ends a graph in torch 2.11: here by force."""
    available = torch.amp.is_autocast_available

    def breaking(kind: str) -> bool:
        torch._dynamo.graph_break()
        return available(kind)

    model = OrchidViT(8, 2, num_classes=3, d_model=8, depth=1, blocks=2, mixer=mixer)
    compiled, images = torch.compile(model, fullgraph=True, backend="aot_eager"), torch.randn(2, 3, 8, 8)
    monkeypatch.setattr(torch.amp, "is_autocast_available", breaking)
    with torch.autocast("cpu", torch.bfloat16):
        y = compiled(images)
    y.float().square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        assert_close("y", y.float(), model(images).float(), 2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS[:2], ids=option_id)
def test_compile_inductor(options: dict[str, object]) -> None:
    mixer, x = OrchidMixer(8, 32, **options), torch.randn(2, 24, 8)
    y = torch.compile(mixer, fullgraph=True)(x)
    y.square().sum().backward()
    assert_close("y", y, mixer(x))


@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_export_with_a_dynamic_batch(options: dict[str, object]) -> None:
    mixer = OrchidMixer(8, 32, **options).eval()
    x, mask = torch.randn(3, 24, 8), torch.rand(3, 24) > 0.2
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(mixer, (x, mask), dynamic_shapes=({0: batch}, {0: batch}))
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    loaded = torch.export.load(stored).module()
    for size in (1, 3, 7):
        x, mask = torch.randn(size, 24, 8), torch.rand(size, 24) > 0.2
        assert_close("y", loaded(x, mask), mixer(x, mask))


@pytest.mark.parametrize("options", VARIANTS, ids=option_id)
def test_onnx(options: dict[str, object], tmp_path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the export extra is not installed")
    mixer = OrchidMixer(8, 32, **options).eval()
    x, mask = torch.randn(2, 24, 8), torch.rand(2, 24) > 0.2
    path = tmp_path / "mixer.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(mixer, (x, mask), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = {i.name: v.numpy() for i, v in zip(session.get_inputs(), (x, mask), strict=True)}
    (y,) = session.run(None, inputs)
    assert_close("y", torch.from_numpy(y), mixer(x, mask), 1e-4)
