"""What image files go through: timm's pipeline, as the paper trains ImageNet (T2T-ViT's)."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from orchid.tasks.imagenette import DEVIATION, MEAN

if TYPE_CHECKING:
    from orchid.tasks.image_files import ImageFilesConfig


@dataclass
class Augmented:
    """Crop and flip, one of two policies, then the tensor; a class, so that any kind of worker can be sent it."""

    crop: Callable[[Any], Any]
    policy: Callable[[Any], Any]
    other: Callable[[Any], Any]
    share: float  # of the images that the other policy is applied to
    finish: Callable[[Any], Tensor]

    def __call__(self, image: Any) -> Tensor:
        """Return the tensor of an image."""
        chosen = self.other if random.random() < self.share else self.policy
        return self.finish(chosen(self.crop(image)))


@dataclass
class AtLeastOneBit:
    """What posterizing keeps at some magnitude: timm's strongest keeps no bit, which Pillow refuses."""

    bits: Callable[[float, dict[str, Any]], tuple[int]]

    def __call__(self, magnitude: float, settings: dict[str, Any]) -> tuple[int]:
        """Return the bits."""
        return (max(1, *self.bits(magnitude, settings)),)


def training_transform(config: "ImageFilesConfig") -> Callable[[Any], Tensor]:
    """Return timm's training pipeline: random crop and flip, RandAugment or AugMix, erasing."""
    create_transform, augment_and_mix_transform = _timm()
    try:
        crop, policy, finish = create_transform(
            config.image_size,
            is_training=True,
            separate=True,
            auto_augment=config.auto_augment or None,
            interpolation="bicubic",
            mean=MEAN,
            std=DEVIATION,
            re_prob=config.erasing,
            re_mode="pixel",
        )
    except AssertionError:  # timm's word for it
        raise ValueError(f"task.auto_augment={config.auto_augment!r} is not a policy of timm's") from None
    for stage in policy.transforms:
        for operation in getattr(stage, "ops", ()):
            if operation.name.startswith("Posterize"):
                operation.level_fn = AtLeastOneBit(operation.level_fn)
    middle = tuple(round(255 * value) for value in MEAN)
    mix = augment_and_mix_transform("augmix-m3-w3", {"translate_pct": 0.3, "img_mean": middle})
    return Augmented(crop, policy, mix, config.augmix, finish)


def evaluation_transform(config: "ImageFilesConfig") -> Callable[[Any], Tensor]:
    """Return timm's evaluation pipeline: the middle of the resized image."""
    create_transform, _ = _timm()
    return create_transform(config.image_size, interpolation="bicubic", mean=MEAN, std=DEVIATION, crop_pct=config.crop)


def _timm() -> tuple[Any, Any]:
    try:
        from timm.data import create_transform
        from timm.data.auto_augment import augment_and_mix_transform
    except ImportError:
        raise ValueError("files of images are augmented by timm (pip install 'orchid-torch[vision]')") from None
    except RuntimeError as error:  # torchvision, which timm needs, is built for one build of torch
        raise ValueError(f"torchvision does not fit this torch ({error}): install both from the same place") from None
    return create_transform, augment_and_mix_transform
