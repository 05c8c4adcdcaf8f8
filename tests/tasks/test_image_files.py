"""Image classification from files: order, shares, resumption, what is wrong."""

from pathlib import Path

import pytest
import torch
from helpers import imagenet_folder, plain_transform
from PIL import Image

from orchid.tasks import image_files
from orchid.tasks.image_files import ImageFilesConfig, ImageFilesTask
from orchid.tasks.vision import ViTConfig


@pytest.fixture(autouse=True)
def without_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("training_transform", "evaluation_transform"):
        monkeypatch.setattr(image_files, name, plain_transform)


def task(folder: Path, workers: int = 0, **settings: object) -> ImageFilesTask:
    config = ImageFilesConfig(data=str(folder), image_size=16, workers=workers, **settings)
    return config.build(ViTConfig(patch_size=8, d_model=16, depth=1), seed=1)


def test_a_batch_is_a_function_of_its_step_however_it_is_reached(tmp_path: Path) -> None:
    folder = imagenet_folder(tmp_path)
    one, two = task(folder), task(folder, workers=2)
    for index in range(3):
        expected = one.train_batch(index, 8, "cpu")
    for a, b in zip(two.train_batch(2, 8, "cpu"), expected, strict=True):
        assert torch.equal(a, b)


def test_processes_make_their_shares_of_one_batch(tmp_path: Path) -> None:
    folder, settings = imagenet_folder(tmp_path), {"mixup": 0.0, "cutmix": 0.0}
    images, labels, _, _ = task(folder, **settings).train_batch(5, 6, "cpu")
    for rank in range(2):
        own, own_labels, _, share = task(folder, **settings).train_share(5, 6, "cpu", rank, 2)
        assert torch.equal(own, images[rank::2]) and torch.equal(own_labels, labels[rank::2])
        assert (share == 1).all()


def test_every_image_is_seen_once_an_epoch_and_differently_the_next(tmp_path: Path) -> None:
    own = task(imagenet_folder(tmp_path), mixup=0.0, cutmix=0.0)
    epochs = [torch.cat([own.train_batch(3 * epoch + i, 6, "cpu")[1] for i in range(3)]) for epoch in range(2)]
    assert all(labels.bincount().tolist() == [6, 6, 6] for labels in epochs)
    assert not torch.equal(*epochs)


def test_evaluation_counts_the_first_and_the_first_five(tmp_path: Path) -> None:
    own = task(imagenet_folder(tmp_path, classes=7, images=2), evaluated=3)

    class Fixed(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.arange(7.0).expand(len(images), -1)  # the last class first, the first two never

    assert own.evaluate(Fixed(), "cpu") == pytest.approx({"test/accuracy": 1 / 7, "test/top5": 5 / 7})


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"task\.data=FOLDER"):
        ImageFilesConfig().build(ViTConfig(), seed=0).files()
    folder = imagenet_folder(tmp_path)
    (folder / "train" / "n00000001" / "3.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"n00000001/3\.png cannot be read"):
        for index in range(3):
            task(folder).train_batch(index, 6, "cpu")
    (folder / "val" / "n00000002").rename(folder / "val" / "other")
    with pytest.raises(ValueError, match="train and val differ in their classes, such as 'n00000002'"):
        task(folder).files()
    (folder / "train" / "empty").mkdir()
    with pytest.raises(ValueError, match=r"train/empty has no images"):
        task(folder).files()


def test_timms_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm", reason="needs timm")
    monkeypatch.undo()
    config = ImageFilesConfig(image_size=32)
    image = Image.new("RGB", (60, 50), "red")
    for transform in (image_files.training_transform(config), image_files.evaluation_transform(config)):
        assert transform(image).shape == (3, 32, 32)
