"""Tensors in files: safetensors, written whole or not at all, and the state of an optimizer among them."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from orchid.files import atomic
from orchid.train.sharding import spread_like, whole


def save_tensors(path: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write tensors and JSON-able state as one safetensors file, atomically; tied tensors are written once."""
    names: dict[tuple[object, ...], str] = {}
    tied = {}
    for name, tensor in tensors.items():
        first = names.setdefault((tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride()), name)
        if first != name and tensor.numel():
            tied[name] = first
    whole_ones = {name: t.detach().cpu().contiguous() for name, t in tensors.items() if name not in tied}
    with atomic(path) as temporary:
        save_file(whole_ones, temporary, metadata={"state": json.dumps(state), "tied": json.dumps(tied)})


def load_tensors(path: Path, advice: str = "delete it to go on without it") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what ``save_tensors`` wrote; of a damaged file the error gives the advice."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        for name, first in json.loads(metadata.get("tied", "{}")).items():
            tensors[name] = tensors[first]
        return tensors, json.loads(metadata.get("state", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged and cannot be read ({error}); {advice}") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's state as named tensors, each whole."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{index}.{key}": whole(value) for index, slot in state.items() for key, value in slot.items()}


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put the state that ``optimizer_tensors`` named back; what does not fit its parameter is an error."""
    slots: dict[int, dict[str, Tensor]] = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for name, value in tensors.items():
        prefix, _, rest = name.partition(".")
        if prefix == "optimizer":
            index, _, key = rest.partition(".")
            number = int(index)
            if number >= len(parameters) or value.numel() not in (1, parameters[number].numel()):
                raise ValueError(
                    "the optimizer's state belongs to other parameters: it was written by another version, "
                    "which decays other parameters; finish the run with that one, or choose another --out"
                )
            parameter = parameters[number]
            value = value.view(parameter.shape) if value.numel() == parameter.numel() and value.ndim else value
            slots.setdefault(number, {})[key] = spread_like(value, parameter)
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
