"""Operators of the library: the same results and gradients whether the dispatcher sees a call or not."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from orchid.ops.kernels.library import operator

calls: list[str] = []


@operator("tested_power")
def power(x: Tensor, exponent: int) -> tuple[Tensor, Tensor]:
    calls.append("forward")
    return x**exponent, x.clone()


@power.register_fake
def _(x: Tensor, exponent: int) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x)


@operator("tested_power_backward")
def power_backward(dy: Tensor, x: Tensor, exponent: int) -> Tensor:
    return dy * exponent * x ** (exponent - 1)


@power_backward.register_fake
def _(dy: Tensor, x: Tensor, exponent: int) -> Tensor:
    return torch.empty_like(x)


def keep(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1])
    ctx.exponent = inputs[1]


def back(ctx: Any, dy: Tensor, _: None) -> tuple[Tensor, None]:
    return power_backward(dy, *ctx.saved_tensors, ctx.exponent), None


power.register_autograd(back, setup_context=keep)


class Watching(TorchDispatchMode):
    """A mode that writes down which operators of ours it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += [func.name()] if func.namespace == "orchid" else []
        return func(*args, **(kwargs or {}))


def cubed(x: Tensor) -> tuple[Tensor, Tensor]:
    y = power(x, 3)[0]
    return y, torch.autograd.grad(y.sum(), x)[0]


def test_eager_calls_are_the_operator() -> None:
    x = torch.randn(5, requires_grad=True)
    y, grad = cubed(x)
    expected = power.op(x, 3)[0]
    assert torch.equal(y, expected) and torch.equal(grad, torch.autograd.grad(expected.sum(), x)[0])
    with torch.no_grad():
        assert torch.equal(power(x, 3)[0], y) and not power(x, 3)[0].requires_grad


def test_a_mode_sees_both_passes() -> None:
    with Watching() as watching:
        cubed(torch.randn(5, requires_grad=True))
    assert watching.seen == ["orchid::tested_power", "orchid::tested_power_backward"]


def test_classes_of_tensors_take_the_dispatcher() -> None:
    """Fake ones hold nothing that a kernel could read."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    fake, calls[:] = FakeTensorMode().from_tensor(torch.randn(5)), []
    assert power(fake, 3)[0].shape == (5,) and not calls


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_in_batches() -> None:
    """Autograd's batched tensors are plain ones by their class, and hold nothing."""
    x, dys = torch.randn(5, requires_grad=True), torch.randn(3, 5)
    (grads,) = torch.autograd.grad(power(x, 3)[0], x, dys, is_grads_batched=True)
    torch.testing.assert_close(grads, dys * 3 * x.detach() ** 2)


def test_negated_tensors_are_negated() -> None:
    x = torch.randn(5)
    assert torch.equal(power(torch._neg_view(x), 3)[0], -(x**3))


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_tracers_record_the_operator(pre_dispatch: bool) -> None:
    traced = make_fx(lambda x: power(x, 3)[0] + 1, pre_dispatch=pre_dispatch)(torch.randn(5))
    assert torch.ops.orchid.tested_power.default in {node.target for node in traced.graph.nodes}


def test_compilers_see_the_operator() -> None:
    compiled, x = torch.compile(cubed_of_sum, backend="aot_eager", fullgraph=True), torch.randn(5, requires_grad=True)
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, 6 * (2 * x.detach()) ** 2)


def cubed_of_sum(x: Tensor) -> Tensor:
    return power(x + x, 3)[0]


def test_no_second_derivative() -> None:
    x = torch.randn(5, requires_grad=True)
    (grad,) = torch.autograd.grad(power(x, 3)[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="tested_power_backward"):
        grad.sum().backward()
