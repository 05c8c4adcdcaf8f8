"""Image classification with everything on the training device: images, augmentation, batches (section 4.3)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.models.vit import OrchidViT
from orchid.ops.checks import check_at_least, check_choice, check_fraction
from orchid.tasks.cifar import CLASSES, SIDE, load_cifar10
from orchid.tasks.seeds import EpochOrder, generator_seed

HELD_OUT = ("test", "valid")
EVALUATED = 1000  # images evaluated together
# Mean and standard deviation of CIFAR-10's training images, by colour.
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def normalised(images: Tensor) -> Tensor:
    """Return images (B, 3, H, W) uint8 as float32 with mean 0 and variance 1 a colour."""
    mean, deviation = (torch.tensor(v, device=images.device).view(3, 1, 1) for v in (MEAN, DEVIATION))
    return (images.float() / 255 - mean) / deviation


def cropped_and_flipped(images: Tensor, margin: int, generator: torch.Generator) -> Tensor:
    """Return every image (B, C, H, W) moved by up to ``margin`` pixels, zeros beyond, half of them mirrored."""
    batch, channels, height, width = images.shape
    device = images.device
    down, right = (torch.randint(2 * margin + 1, (batch, 1), generator=generator, device=device) for _ in range(2))
    mirrored = torch.rand(batch, 1, generator=generator, device=device) < 0.5
    x = torch.arange(width, device=device).expand(batch, -1)
    rows = torch.arange(height, device=device) + down  # (B, H)
    columns = torch.where(mirrored, width - 1 - x, x) + right
    padded = F.pad(images, (margin,) * 4)
    number, colour = torch.arange(batch, device=device), torch.arange(channels, device=device)
    return padded[number[:, None, None, None], colour[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]


class Cifar10Task:
    """Classifies CIFAR-10; a batch is a pure function of its step."""

    def __init__(self, config: "Cifar10Config", model: "ViTConfig", seed: int) -> None:
        check_choice("task.held_out", config.held_out, HELD_OUT)
        check_at_least("task.margin", config.margin, 0)
        check_fraction("task.label_smoothing", config.label_smoothing)
        self.config, self.model, self.seed = config, model, seed
        self._data: dict[str, tuple[Tensor, Tensor]] | None = None
        self._order: EpochOrder | None = None

    def build_model(self) -> nn.Module:
        """Return the model for these images."""
        return self.model.build(SIDE, len(CLASSES))

    def data(self, device: Any) -> dict[str, tuple[Tensor, Tensor]]:
        """Return images and labels to train on and to evaluate on, on the device; read once."""
        if self._data is None:
            if not self.config.data:
                raise ValueError("--set task.data=FOLDER must name a folder with CIFAR-10")
            folder = Path(self.config.data)
            images, labels = load_cifar10(folder, "train")
            if self.config.held_out == "valid":
                order = torch.randperm(
                    len(images), generator=torch.Generator().manual_seed(0)
                )  # the same for all seeds
                held, kept = order[: self.config.valid_images], order[self.config.valid_images :]
                parts = {"train": (images[kept], labels[kept]), "valid": (images[held], labels[held])}
            else:
                parts = {"train": (images, labels), "test": load_cifar10(folder, "test")}
            self._data = {name: (x.to(device), y.to(device)) for name, (x, y) in parts.items()}
        return self._data

    def train_batch(self, index: int, size: int, device: Any) -> tuple[Tensor, ...]:
        """Return the augmented images and the labels of a step."""
        images, labels = self.data(device)["train"]
        if self._order is None:
            self._order = EpochOrder(len(images), self.seed)
        rows = self._order.batch(index, size).to(device, non_blocking=True)
        generator = torch.Generator(device).manual_seed(generator_seed("train", self.seed, index, device))
        return cropped_and_flipped(normalised(images[rows]), self.config.margin, generator), labels[rows]

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy with smoothed labels, and the number of images."""
        images, labels = batch
        loss = F.cross_entropy(
            model(images).float(), labels, reduction="sum", label_smoothing=self.config.label_smoothing
        )
        return loss, torch.full((), len(labels), device=labels.device)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, device: Any) -> dict[str, float]:
        """Return the accuracy on what is held out."""
        images, labels = self.data(device)[self.config.held_out]
        right = torch.zeros((), dtype=torch.int64, device=device)
        for rows in torch.arange(len(images), device=device).split(EVALUATED):
            right += (model(normalised(images[rows])).argmax(dim=-1) == labels[rows]).sum()
        return {f"{self.config.held_out}/accuracy": right.item() / len(images)}


@dataclass(kw_only=True)
class Cifar10Config:
    """Settings of CIFAR-10.

    Attributes:
        data: folder of the images.
        held_out: "test" trains on all 50,000 and evaluates on the test set, which a recipe does once, at its end;
            "valid" holds out images of the training set instead: for choices.
        valid_images: how many.
        margin: pixels an image is moved by, at most.
        label_smoothing: share of a label spread over all classes.
    """

    data: str = ""
    held_out: str = "test"
    valid_images: int = 5000
    margin: int = 4
    label_smoothing: float = 0.1

    def build(self, model: "ViTConfig", seed: int) -> Cifar10Task:
        """Return the task."""
        return Cifar10Task(self, model, seed)


@dataclass(kw_only=True)
class ViTConfig:
    """Settings of ``OrchidViT``."""

    patch_size: int = 4
    d_model: int = 128
    depth: int = 6
    mixer: str = "orchid"
    options: dict[str, Any] = field(default_factory=dict)
    mlp: str = "plain"
    blocks: int = 4
    expansion: int = 4
    dropout: float = 0.0

    def build(self, image_size: int, num_classes: int) -> OrchidViT:
        """Return the model."""
        return OrchidViT(
            image_size,
            self.patch_size,
            num_classes=num_classes,
            d_model=self.d_model,
            depth=self.depth,
            mixer=self.mixer,
            options=self.options,
            mlp=self.mlp,
            blocks=self.blocks,
            expansion=self.expansion,
            dropout=self.dropout,
        )
