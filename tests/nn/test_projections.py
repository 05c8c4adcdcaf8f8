"""Projections are ordinary linear layers: what replaces one, watches one or places its weights finds them so."""

import copy

import pytest
import torch
from torch import Tensor, nn

from orchid import OrchidMixer, create_mixer, list_mixers
from orchid.nn.mixer2d import OrchidMixer2d

PROJECTIONS = ("in_proj", "out_proj")


class Adapted(nn.Module):
    """A linear layer with an update of low rank beside it, as adapters have it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, 2, bias=False)
        self.up = nn.Linear(2, linear.out_features, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + self.up(self.down(x))


def adapted(layer: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Return a layer with adapters in place of its projections, and one whose matrices hold their sum."""
    merged = copy.deepcopy(layer)
    for name in PROJECTIONS:
        linear = getattr(layer, name, None)
        if linear is None:
            continue
        adapter = Adapted(linear)
        setattr(layer, name, adapter)
        with torch.no_grad():
            getattr(merged, name).weight += adapter.up.weight @ adapter.down.weight
    return layer, merged


@pytest.mark.parametrize("name", list_mixers())
def test_adapters(name: str) -> None:
    layer, merged = adapted(create_mixer(name, 8, 12))
    x, mask = torch.randn(2, 10, 8), torch.arange(10) < torch.tensor([[10], [7]])
    torch.testing.assert_close(layer(x, mask)[mask], merged(x, mask)[mask])
    layer(x, mask)[mask].sum().backward()
    assert all(p.grad is not None for n, p in layer.named_parameters() if ".down." in n or ".up." in n)


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_adapters_beside_a_context_and_the_kernels(backend: str) -> None:
    options = {"filter_width": 8, "backend": backend}
    layer, merged = adapted(OrchidMixer(4, 12, **options))
    x, u = torch.randn(2, 10, 4), torch.randn(2, 6, 4)
    torch.testing.assert_close(layer(x, context=u), merged(x, context=u))
    image, whole = adapted(OrchidMixer2d(4, 4, 4, **options))
    x = torch.randn(2, 4, 4, 4)
    torch.testing.assert_close(image(x), whole(x))


@pytest.mark.parametrize("name", ["orchid", "hyena", "h3", "monarch"])
def test_hooks_see_tokens_by_channels(name: str) -> None:
    layer, x, seen = create_mixer(name, 8, 12), torch.randn(2, 10, 8), []
    expected = layer(x)
    for part in PROJECTIONS:
        getattr(layer, part).register_forward_hook(lambda _, given, out: seen.append((given[0].shape, out.shape)))
    torch.testing.assert_close(layer(x), expected)
    assert [given[:2] for given, _ in seen] == [(2, 10), (2, 10)] and seen[1] == ((2, 10, 8), (2, 10, 8))


@pytest.mark.parametrize("name", [*list_mixers(), "orchid-2d"])
def test_weights_are_where_modules_are_called(name: str) -> None:
    """Offloading brings a module's weights when it is called, and takes them away again."""
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate")
    options = {"residual_conv": True} if name == "orchid" else {}
    layer = OrchidMixer2d(8, 4, 4) if name == "orchid-2d" else create_mixer(name, 8, 12, **options)
    x = torch.randn(2, 4, 4, 8) if name == "orchid-2d" else torch.randn(2, 10, 8)
    with torch.no_grad():
        expected = layer(x)
        accelerate.cpu_offload(layer, execution_device=torch.device("cpu"))
        assert all(p.is_meta for p in layer.parameters())
        torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("options", [{}, {"conditioning": "cross"}, {"residual_conv": True, "order": 2}], ids=str)
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_tracing_to_torchscript(options: dict[str, object]) -> None:
    layer = OrchidMixer(8, 12, **options).eval()
    traced = torch.jit.trace(layer, torch.randn(2, 12, 8))
    x = torch.randn(3, 12, 8)
    torch.testing.assert_close(traced(x), layer(x))
