"""The fused kernels among what PyTorch does around a layer: operators, compiling, checkpoints, hooks, DTensors."""

from pathlib import Path

import pytest
import torch
from kernel_checks import DEVICE, build
from torch.distributed.tensor import DTensor

pytest.importorskip("triton", reason="needs Triton")
from orchid.ops.kernels import mix

pytestmark = pytest.mark.usefixtures("few_programs")


def test_operator_contract() -> None:
    mixer, called = build(2, 8), {}

    def record(*arguments: object) -> tuple[torch.Tensor, torch.Tensor]:
        called["arguments"] = tuple(
            a.detach().requires_grad_(a.is_floating_point()) if isinstance(a, torch.Tensor) else a for a in arguments
        )
        return original(*arguments)

    original = mix._mix
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mix, "_mix", record)
        mixer(torch.randn(1, 8, 2, device=DEVICE), torch.tensor([[True] * 7 + [False]], device=DEVICE))
    torch.library.opcheck(original.op, called["arguments"])


@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiles_whole() -> None:
    torch.compiler.reset()  # other tests' layers must not count against this one's recompilations
    mixer, x = build(), torch.randn(2, 16, 2, device=DEVICE)
    compiled = torch.compile(mixer, fullgraph=True, backend="aot_eager")
    ours, theirs = (torch.autograd.grad(f(x).square().sum(), list(mixer.parameters())) for f in (compiled, mixer))
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("options", [{}, {"residual_conv": True}], ids=str)
def test_checkpointing_changes_nothing(options: dict[str, object]) -> None:
    mixer, x = build(**options), torch.randn(2, 16, 2, device=DEVICE, requires_grad=True)
    leaves = [x, *mixer.parameters()]
    plain = torch.autograd.grad(mixer(x).square().sum(), leaves)
    y = torch.utils.checkpoint.checkpoint(mixer, x, use_reentrant=False)
    again = torch.autograd.grad(y.square().sum(), leaves)
    assert all(torch.equal(a, b) for a, b in zip(again, plain, strict=True))


def test_parameters_need_not_be_contiguous() -> None:
    mixer, x = build(), torch.randn(2, 16, 2, device=DEVICE)
    expected = mixer(x)
    for module in (mixer.short_conv, mixer.stages[0].static.filter):
        name = "weight" if module is mixer.short_conv else "output"
        strided = getattr(module, name).detach().t().contiguous().t()
        assert not strided.is_contiguous()
        setattr(module, name, torch.nn.Parameter(strided))
    assert torch.equal(mixer(x), expected)


@pytest.mark.filterwarnings("ignore")  # the library's own, on its first forward-mode derivative
def test_hooks_and_transforms_are_not_passed_by() -> None:
    mixer, x = build(), torch.randn(1, 16, 2, device=DEVICE)
    with pytest.raises(ValueError, match=r"torch\.func transforms"):
        torch.func.jvp(mixer, (x,), (x,))
    handle = mixer.short_conv.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="has hooks"):
        mixer(x)
    handle.remove()
    mixer(x)


def test_tensors_that_several_processes_hold_are_not_read(tmp_path: Path) -> None:
    local = torch.randn(1, 16, 2, device=DEVICE)  # before the mesh: the library warns of a device that nobody has used
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = torch.distributed.init_device_mesh(DEVICE, (1,))
        x = DTensor.from_local(local, mesh, run_check=False)
        with pytest.raises(ValueError, match="DTensor"):
            build()(x)
    finally:
        torch.distributed.destroy_process_group()


def test_what_is_not_served_says_why() -> None:
    with pytest.raises(ValueError, match="filter_width up to 256"):
        build(filter_width=512)
    mixer = build()
    with pytest.raises(ValueError, match=r"cannot serve: x has dtype torch\.float64"):
        mixer.double()(torch.zeros(1, 16, 3, dtype=torch.float64, device=DEVICE))
