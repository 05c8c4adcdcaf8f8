"""Image classification with everything on the training device: images, augmentation, batches (section 4.3)."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from orchid.digests import joint_digest
from orchid.models.vit import ViTConfig
from orchid.ops.checks import check_at_least, check_choice, check_fraction, check_positive_or_zero, check_share
from orchid.tasks import cifar, imagenette
from orchid.tasks.augment import cropped_and_flipped, erased, mixed, mixed_loss, normalised
from orchid.tasks.image_folder import OwnImages, read_folder
from orchid.tasks.predictions import draw_predictions, keep_own
from orchid.tasks.seeds import EpochOrder, generator_seed, held_out

HELD_OUT = ("test", "valid")
EVALUATED = 1000  # images evaluated together


@dataclass(frozen=True)
class ImageSet:
    """A set of images that fits on a device: (folder, "train" or "test") -> images uint8, labels."""

    title: str
    side: int
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]
    load: Callable[[Path, str], tuple[Tensor, Tensor]]


IMAGE_SETS = {
    "cifar10": ImageSet("CIFAR-10", cifar.SIDE, cifar.CLASSES, cifar.MEAN, cifar.DEVIATION, cifar.load_cifar10),
    "imagenette": ImageSet(
        "Imagenette",
        imagenette.SIDE,
        imagenette.CLASSES,
        imagenette.MEAN,
        imagenette.DEVIATION,
        imagenette.load_imagenette,
    ),
}


class ImageTask:
    """Classifies a set of images; a batch is a pure function of its step."""

    def __init__(self, config: "ImageConfig", model: ViTConfig, seed: int) -> None:
        self.set = IMAGE_SETS[check_choice("task.images", config.images, IMAGE_SETS)]
        check_choice("task.held_out", config.held_out, HELD_OUT)
        check_at_least("task.margin", config.margin, 0)
        check_at_least("task.valid_images", config.valid_images, 1)
        check_fraction("task.label_smoothing", config.label_smoothing)
        check_share("task.erasing", config.erasing)
        for name in ("mixup", "cutmix"):
            check_positive_or_zero(f"task.{name}", getattr(config, name))
        self.config, self.model, self.seed = config, model, seed
        self._data: dict[str, tuple[Tensor, Tensor]] | None = None
        self._device: Any = None
        self._order: EpochOrder | None = None

    def identify(self) -> None:
        """Keep what tells these images and labels from others."""
        parts = [part for pair in self.data("cpu").values() for part in pair]
        self.config.digest = joint_digest(hashlib.sha256(part.contiguous().numpy().data).hexdigest() for part in parts)

    def build_model(self) -> nn.Module:
        """Return the model for these images."""
        return self.model.build(self.set.side, len(self.set.classes))

    def data(self, device: Any) -> dict[str, tuple[Tensor, Tensor]]:
        """Return images and labels to train on and to evaluate on, on the device they are wanted on; read once."""
        if self._data is None:
            if not self.config.data:
                raise ValueError(f"--data FOLDER must name a folder with {self.set.title}")
            folder = Path(self.config.data)
            images, labels = self.set.load(folder, "train")
            if self.config.held_out == "valid":
                held, kept = held_out(len(images), self.config.valid_images)
                parts = {"train": (images[kept], labels[kept]), "valid": (images[held], labels[held])}
            else:
                parts = {"train": (images, labels), "test": self.set.load(folder, "test")}
            self._data = parts
        if self._device != device:
            self._data = {name: (x.to(device), y.to(device)) for name, (x, y) in self._data.items()}
            self._device = device
        return self._data

    def train_batch(self, index: int, size: int, device: Any) -> tuple[Tensor, ...]:
        """Return the augmented images and the labels of a step; of mixed images also the others', and one's share."""
        config = self.config
        images, labels = self.data(device)["train"]
        if self._order is None:
            self._order = EpochOrder(len(images), self.seed)
        rows = self._order.batch(index, size).to(device, non_blocking=True)
        generator = torch.Generator(device).manual_seed(generator_seed("train", self.seed, index, device))
        x, y = cropped_and_flipped(self.prepared(images[rows]), config.margin, generator), labels[rows]
        if config.erasing:
            x = erased(x, config.erasing, generator)
        if config.mixup or config.cutmix:
            x, others, share = mixed(x, y, config.mixup, config.cutmix, generator)
            return x, y, others, share
        return x, y

    def prepared(self, images: Tensor) -> Tensor:
        """Return images uint8 as the model takes them."""
        return normalised(images, self.set.mean, self.set.deviation)

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy with smoothed labels, and the number of images."""
        return mixed_loss(model, batch, self.config.label_smoothing)

    @torch.no_grad()
    def predictions(self, model: nn.Module, images: Tensor) -> Tensor:
        """Return the classes of images (N, 3, side, side) uint8: (N,)."""
        return torch.cat([model(self.prepared(part)).argmax(dim=-1) for part in images.split(EVALUATED)])

    @torch.no_grad()
    def evaluate(self, model: nn.Module, device: Any) -> dict[str, float]:
        """Return accuracy and loss on what is held out."""
        held = self.config.held_out
        images, labels = self.data(device)[held]
        totals = torch.zeros(2, dtype=torch.float64, device=labels.device)
        for part, own in zip(images.split(EVALUATED), labels.split(EVALUATED), strict=True):
            logits = model(self.prepared(part)).float()
            loss = nn.functional.cross_entropy(logits, own, reduction="sum")
            totals += torch.stack(((logits.argmax(dim=-1) == own).sum().double(), loss.double()))
        right, loss = (totals / len(images)).tolist()
        return {f"{held}/accuracy": right, f"{held}/loss": loss}

    def draw(self, model: nn.Module, device: Any, folder: Path) -> list[Path]:
        """Draw the confusion matrix of what is held out, and some images with what they were taken for."""
        images, labels = self.data(device)[self.config.held_out]
        predicted = self.predictions(model, images)
        return [draw_predictions(images.cpu(), labels.cpu(), predicted.cpu(), self.set.classes, folder)]

    def own_images(self, folder: Path) -> OwnImages:
        """Read a user's images."""
        return read_folder(folder, self.set.classes, self.set.side)

    def evaluate_own(self, model: nn.Module, device: Any, own: OwnImages, folder: Path) -> dict[str, float]:
        """Classify a user's images: see ``predictions.keep_own``."""
        return keep_own(own, self.predictions(model, own.images.to(device)).cpu(), self.set.classes, folder)


@dataclass(kw_only=True)
class ImageConfig:
    """Settings of an image classification.

    Attributes:
        images: "cifar10" or "imagenette".
        data: folder of the images.
        held_out: "test" trains on all training images and evaluates on the test set, which a recipe does once, at its
            end; "valid" holds out images of the training set instead: for choices.
        valid_images: how many.
        margin: pixels an image is moved by, at most.
        erasing: share of the images that lose a square.
        mixup: the parameter of the Beta distribution that images are averaged with; 0 is never.
        cutmix: likewise, of those that get a square of another.
        label_smoothing: share of a label spread over all classes.
        digest: of the images and labels, once they have been read.
    """

    images: str = "cifar10"
    data: str = ""
    held_out: str = "test"
    valid_images: int = 5000
    margin: int = 4
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    label_smoothing: float = 0.1
    digest: str = ""

    def build(self, model: ViTConfig, seed: int) -> ImageTask:
        """Return the task."""
        return ImageTask(self, model, seed)
