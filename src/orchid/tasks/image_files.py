"""Image classification from files, too many for a device: ImageNet, FOLDER/train/CLASS/image and FOLDER/val.

Files are decoded and augmented by worker processes through timm's pipeline (extra ``vision``); what an image is turned
into is decided by the seed, the step and its place in the batch: a run resumed on as many processes goes on as if it
had not stopped.
"""

import random
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from orchid.digests import joint_digest
from orchid.models.vit import ViTConfig
from orchid.ops.checks import check_at_least, check_choice, check_fraction, check_positive_or_zero, check_share
from orchid.tasks.augment import mixed, mixed_loss
from orchid.tasks.image_folder import Files, OwnImages, list_files, middle, read_folder
from orchid.tasks.image_pipeline import evaluation_transform, training_transform
from orchid.tasks.imagenette import Packed
from orchid.tasks.pixels import Unreadable, read_rgb
from orchid.tasks.predictions import draw_predictions, keep_own
from orchid.tasks.seeds import EpochOrder, generator_seed, held_out
from orchid.tasks.vision import HELD_OUT

DRAWN = 512  # images that a picture of predictions is drawn from
EVALUATED_ON = ("val", "validation", "test")  # folders of what is evaluated, the first that is there
Item = tuple[int, int]  # an image's number, and the seed of its augmentation


class Decoded(Dataset[tuple[Tensor, int]]):
    """Images as tensors (3, size, size); an item is a number and the seed of all that is drawn for it."""

    def __init__(self, files: Files | Packed, transform: Callable[[Any], Tensor]) -> None:
        self.files, self.transform = files, transform

    def __getitem__(self, item: Item) -> tuple[Tensor, int]:
        """Decode and augment; a file that cannot be read is named."""
        number, seed = item
        image = self.files.image(number)
        with _seeded(seed):
            return self.transform(image), self.files.labels[number]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the three generators that the pipeline draws from, and leave them as they were: without workers they are
    those that the model is trained with."""
    kept = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(kept[0])
            np.random.set_state(kept[1])  # noqa: NPY002


class ImageFilesTask:
    """Classifies images that are read from files as they are needed; a batch is a pure function of its step."""

    def __init__(self, config: "ImageFilesConfig", model: ViTConfig, seed: int) -> None:
        check_at_least("task.image_size", config.image_size, 1)
        check_at_least("task.workers", config.workers, 0)
        check_at_least("task.evaluated", config.evaluated, 1)
        check_choice("task.held_out", config.held_out, HELD_OUT)
        check_at_least("task.valid_images", config.valid_images, 1)
        check_fraction("task.label_smoothing", config.label_smoothing)
        for name in ("erasing", "augmix", "crop"):
            check_share(f"task.{name}", getattr(config, name))
        for name in ("mixup", "cutmix"):
            check_positive_or_zero(f"task.{name}", getattr(config, name))
        if not config.crop:
            raise ValueError("task.crop=0 leaves nothing of an image")
        self.config, self.model, self.seed = config, model, seed
        self._files: dict[str, Files | Packed] | None = None
        self._stream: tuple[int, Iterator[tuple[Tensor, Tensor]]] | None = None

    def identify(self) -> None:
        """Keep the classes, in the order of the model's outputs, and what tells these images from others."""
        self.config.classes = list(self.files()["train"].classes)
        self.config.digest = joint_digest(files.digest() for files in self.files().values())
        training_transform(self.config)  # a wrong policy is told before a folder is claimed, and so is a missing timm

    def classes(self) -> tuple[str, ...]:
        """Return the classes that the model was trained on, or is to be."""
        return tuple(self.config.classes) or self.files()["train"].classes

    def files(self) -> dict[str, Files | Packed]:
        """Return what to train on and what to evaluate on, "test" or "valid": listed once."""
        if self._files is None:
            train, test = self._sets()
            self._files = {"train": train, "test": test}
            if self.config.held_out == "valid":
                held, kept = held_out(len(train.labels), self.config.valid_images)
                self._files = {"train": train.subset(kept.tolist()), "valid": train.subset(held.tolist())}
        return self._files

    def _sets(self) -> tuple[Files | Packed, Files | Packed]:
        """Return the training set and what is not trained on, files or a packed Imagenette, of the same classes."""
        if not self.config.data:
            raise ValueError("--data FOLDER must name a folder with train/CLASS/image and val/CLASS/image")
        folder = Path(self.config.data)
        if (folder / "train.npz").is_file():
            return Packed.read(folder, "train"), Packed.read(folder, "test")
        held = next((folder / name for name in EVALUATED_ON if (folder / name).is_dir()), folder / "val")
        train, test = list_files(folder / "train"), list_files(held)
        if train.classes != test.classes:
            other = sorted(set(train.classes) ^ set(test.classes))
            raise ValueError(f"{folder}: train and {held.name} differ in their classes, such as {other[0]!r}")
        if self.config.classes and train.classes != tuple(self.config.classes):
            other = sorted(set(train.classes) ^ set(self.config.classes)) or list(train.classes)
            raise ValueError(f"{folder} has other classes than the run was trained on, such as {other[0]!r}")
        return train, test

    def build_model(self) -> nn.Module:
        """Return the model for these images; only its shape needs no files."""
        known = self.config.classes or self.config.data or torch.get_default_device().type != "meta"
        return self.model.build(self.config.image_size, len(self.classes()) if known else self.config.expected_classes)

    def train_batch(self, index: int, size: int, device: Any) -> tuple[Tensor, ...]:
        """Return a whole batch."""
        return self.train_share(index, size, device, 0, 1)

    def train_share(self, index: int, size: int, device: Any, rank: int, ranks: int) -> tuple[Tensor, ...]:
        """Return one process's share of a step's batch: images, labels, the partners' labels, one's own share."""
        if self._stream is None or self._stream[0] != index:  # the first step of a run, new or resumed
            self._stream = (index, self._batches(index, size, rank, ranks))
        images, labels = (t.to(device, non_blocking=True) for t in next(self._stream[1]))
        self._stream = (index + 1, self._stream[1])
        number = generator_seed("train", self.seed, index * ranks + rank, device)
        generator = torch.Generator(device).manual_seed(number)
        mixed_images, others, share = mixed(images, labels, self.config.mixup, self.config.cutmix, generator)
        return mixed_images, labels, others, share

    def _batches(self, first: int, size: int, rank: int, ranks: int) -> Iterator[tuple[Tensor, Tensor]]:
        files = self.files()["train"]
        order = EpochOrder(len(files.labels), self.seed)

        def items() -> Iterator[list[Item]]:
            index = first
            while True:
                numbers = order.batch(index, size).tolist()
                places = range(rank, size, ranks)
                yield [(numbers[place], _item_seed(self.seed, index * size + place)) for place in places]
                index += 1

        return _plain_errors(self._loader(Decoded(files, training_transform(self.config)), items()))

    def _loader(self, data: Decoded, batches: Any) -> DataLoader[tuple[Tensor, int]]:
        workers = self.config.workers
        return DataLoader(
            data,
            batch_sampler=batches,
            num_workers=workers,
            pin_memory=torch.cuda.is_available(),
            prefetch_factor=1 if workers else None,  # a batch is large, and every worker holds one
            worker_init_fn=_outlive_interrupts,
            generator=torch.Generator(),  # the workers' seeds; otherwise drawn from the generator the model uses
        )

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy with smoothed, mixed labels, and the number of images."""
        return mixed_loss(model, batch, self.config.label_smoothing)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, device: Any) -> dict[str, float]:
        """Return how many images have the model's first class, and one of its first five, and the loss.

        Processes share the work.
        """
        held = self.config.held_out
        files = self.files()[held]
        parallel = torch.distributed.is_available() and torch.distributed.is_initialized()
        rank, ranks = (torch.distributed.get_rank(), torch.distributed.get_world_size()) if parallel else (0, 1)
        count, size = len(files.labels), self.config.evaluated
        # Every process runs as many batches, of as many images: sharded models gather in each. Repeats do not count.
        places = torch.arange(-(-count // ranks)) * ranks + rank
        counted = (places < count).split(size)
        batches = [[(place, 0) for place in part.tolist()] for part in (places % count).split(size)]
        totals = torch.zeros(3, dtype=torch.float64, device=device)
        loader = self._loader(Decoded(files, evaluation_transform(self.config)), batches)
        for (images, labels), counts in zip(_plain_errors(loader), counted, strict=True):
            logits, own, there = model(images.to(device)).float(), labels.to(device), counts.to(device)
            hits = (logits.topk(min(5, len(files.classes)), dim=-1).indices == own[:, None]) & there[:, None]
            losses = nn.functional.cross_entropy(logits, own, reduction="none")[there]
            totals += torch.stack((hits[:, 0].sum(), hits.sum(), losses.sum()))
        if parallel:
            torch.distributed.all_reduce(totals)
        first, five, loss = (totals / count).tolist()
        return {f"{held}/accuracy": first, f"{held}/top5": five, f"{held}/loss": loss}

    @torch.no_grad()
    def predictions(self, model: nn.Module, images: Iterable[Any], device: Any) -> Tensor:
        """Return the classes of pictures, PIL's RGB, cut as what is evaluated is: (N,), on the CPU."""
        transform, found = evaluation_transform(self.config), []
        pictures = iter(images)
        while part := [transform(image) for image in islice(pictures, self.config.evaluated)]:
            found.append(model(torch.stack(part).to(device)).argmax(dim=-1).cpu())
        return torch.cat(found)

    def draw(self, model: nn.Module, device: Any, folder: Path) -> list[Path]:
        """Draw some images of what is evaluated with what they were taken for; of few classes a confusion matrix."""
        files = self.files()[self.config.held_out]
        numbers = torch.linspace(0, len(files.labels) - 1, min(DRAWN, len(files.labels))).long().unique().tolist()
        images = torch.stack([middle(files.image(number), self.config.image_size) for number in numbers])
        labels = torch.tensor(files.labels)[numbers]
        predicted = self.predictions(model, map(files.image, numbers), device)
        return [draw_predictions(images, labels, predicted, files.classes, folder)]

    def own_images(self, folder: Path) -> OwnImages:
        """Read a user's images."""
        return read_folder(folder, self.classes(), self.config.image_size)

    def evaluate_own(self, model: nn.Module, device: Any, own: OwnImages, folder: Path) -> dict[str, float]:
        """Classify a user's images: see ``predictions.keep_own``."""
        pictures = (read_rgb(path, str(path)) for path in own.files)
        return keep_own(own, self.predictions(model, pictures, device), self.classes(), folder)


def _item_seed(seed: int, place: int) -> int:
    """Return the seed of one image of one batch: fields of a number that a CPU's generator tells apart."""
    return (seed * 0x9E3779B1 + place * 0x85EBCA77) % 2**32


def _plain_errors(batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches; a file that a worker cannot read is an error of one line, without the worker's traceback."""
    try:
        yield from batches
    except Unreadable as error:
        raise Unreadable(str(error).rpartition("Unreadable: ")[2].strip()) from None


def _outlive_interrupts(worker: int) -> None:
    """Let the training process decide what Ctrl-C means: it needs its workers for the step under way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(kw_only=True)
class ImageFilesConfig:
    """Settings of a classification of image files, those of the paper's ImageNet-1k (T2T-ViT's pipeline).

    Attributes:
        data: folder with train/CLASS/image and val/CLASS/image.
        image_size: side that images are cut to.
        workers: processes that decode.
        auto_augment: timm's name of a policy: RandAugment of magnitude 9 with deviation 0.5, two operations.
        augmix: share of the images that AugMix is applied to instead.
        erasing: share that random erasing is applied to.
        mixup: parameter of the Beta distribution of Mixup; 0 is never.
        cutmix: likewise, of CutMix; with both, either with even odds.
        label_smoothing: share of a label spread over all classes.
        crop: share of the resized side that is evaluated.
        evaluated: images evaluated together.
        held_out: what is evaluated: "test", the folder that is not trained on, or "valid", training images that are
            then not trained on.
        valid_images: how many.
        expected_classes: how many, as far as can be told before the data are read.
        classes: their names, once the data have been read, in the order of the model's outputs.
        digest: of the classes and the names of the files.
    """

    data: str = ""
    image_size: int = 224
    workers: int = 8
    auto_augment: str = "rand-m9-n2-mstd0.5-inc1"
    augmix: float = 0.5
    erasing: float = 0.25
    mixup: float = 0.8
    cutmix: float = 1.0
    label_smoothing: float = 0.1
    crop: float = 0.9
    evaluated: int = 256
    held_out: str = "test"
    valid_images: int = 10_000
    expected_classes: int = 1000
    classes: list[str] = field(default_factory=list)
    digest: str = ""

    def build(self, model: ViTConfig, seed: int) -> ImageFilesTask:
        """Return the task."""
        return ImageFilesTask(self, model, seed)
