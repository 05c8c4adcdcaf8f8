"""FSDP2: each process keeps a part of every parameter, gradient and optimizer state; blocks are gathered in turn."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from orchid.models.block import OrchidBlock


def shard(model: nn.Module, device: torch.device) -> None:
    """Spread every block, then what is outside the blocks, over all processes, in place."""
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for module in [m for m in model.modules() if isinstance(m, OrchidBlock)]:
        fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)


def synchronise(model: nn.Module, on: bool) -> None:
    """Say whether the next backward pass exchanges gradients."""
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(on)


def local(tensor: Tensor) -> Tensor:
    """Return this process's part of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor; every process must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def spread_like(tensor: Tensor, model: Tensor) -> Tensor:
    """Return a whole tensor spread as ``model`` is."""
    if not isinstance(model, DTensor) or tensor.shape != model.shape:
        return tensor
    return distribute_tensor(tensor.to(model.device), model.device_mesh, model.placements)
