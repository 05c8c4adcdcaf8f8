"""The optimizer's rules: which parameters decay, and the learning rate of every step."""

import math

import torch
from torch import nn

from orchid.nn.linear_weights import linear_weights
from orchid.train.config import TrainConfig


def param_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Split parameters in two: matrices of linear layers decay; embeddings, norms, biases, taps and filters do not.

    A head that shares its matrix with an embedding is that embedding.
    """
    embeddings = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Embedding)}
    matrices = {id(weight) for weight in linear_weights(model)} - embeddings
    trained = [p for p in model.parameters() if p.requires_grad and p.numel()]
    return [
        {"params": [p for p in trained if id(p) in matrices], "weight_decay": weight_decay},
        {"params": [p for p in trained if id(p) not in matrices], "weight_decay": 0.0},
    ]


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Return AdamW over ``param_groups``; the engine sets the learning rate of every step."""
    groups = param_groups(model, config.weight_decay)
    if not config.graph or not all(p.is_cuda for p in model.parameters()):
        return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, config.beta2))
    # A captured step reads the rate from the device.
    rate = torch.tensor(config.learning_rate, device="cuda")
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, config.beta2), fused=True, capturable=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of the next step."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(config: TrainConfig, step: int) -> float:
    """Return the rate of a step, counted from 0: linear warm-up, then the schedule."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    progress = (step - config.warmup) / max(1, config.steps - config.warmup)
    if config.schedule == "cosine":
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
    if config.schedule == "linear":
        return config.learning_rate * (1 - progress)
    return config.learning_rate
