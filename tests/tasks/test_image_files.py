"""Image classification from files: order, shares, resumption, what is wrong."""

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import imagenet_folder, imagenette_folder, plain_transform
from PIL import Image

from orchid.commands.runs import evaluate_folder, load_run
from orchid.models.vit import ViTConfig
from orchid.recipes import get_recipe
from orchid.tasks import image_files
from orchid.tasks.image_files import ImageFilesConfig, ImageFilesTask
from orchid.tasks.image_folder import Files
from orchid.tasks.image_pipeline import AtLeastOneBit, Augmented, evaluation_transform, training_transform
from orchid.tasks.imagenette import Packed
from orchid.train.engine import Engine


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


def test_reading_without_workers_leaves_the_random_state_alone(tmp_path: Path) -> None:
    own = task(imagenet_folder(tmp_path))
    before = torch.get_rng_state(), random.getstate()
    own.train_batch(0, 8, "cpu")
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


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

    loss = torch.logsumexp(torch.arange(7.0), 0).item() - 3
    expected = {"test/accuracy": 1 / 7, "test/top5": 5 / 7, "test/loss": loss}
    assert own.evaluate(Fixed(), "cpu") == pytest.approx(expected)


def test_processes_evaluate_alike_and_count_no_image_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sharded models gather in every forward pass: all processes need as many of them, of as many images."""
    own = task(imagenet_folder(tmp_path, classes=1, images=7), evaluated=2)
    passes: list[list[int]] = []

    class Counting(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            passes[-1].append(len(images))
            return torch.ones(len(images), 1)

    counted = []
    for rank in range(3):
        passes.append([])
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda own=rank: own)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
        monkeypatch.setattr(torch.distributed, "all_reduce", lambda totals: counted.append(int(totals[0])))
        own.evaluate(Counting(), "cpu")
    assert passes == [[2, 1]] * 3
    assert counted == [3, 2, 2]


def test_workers_can_be_sent_the_pipeline() -> None:
    pipeline = Augmented(str, str, str, 0.5, len)
    assert pickle.loads(pickle.dumps(pipeline))("abc") == 3


def test_readers_that_end_with_the_run_take_nothing_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the group ends them before the engine asks for its next batch."""
    experiment = get_recipe("vision/imagenet-b-p16").tiny()
    experiment.task.data, experiment.task.workers = str(imagenet_folder(tmp_path / "images")), 0
    engine = Engine(experiment, tmp_path / "run", cpu=True)
    share = ImageFilesTask.train_share

    def ended(own: ImageFilesTask, index: int, *given: object) -> tuple[torch.Tensor, ...]:
        if index == 2:
            if stopped:
                engine.stopper.reason = "termination"
            raise RuntimeError("DataLoader worker exited unexpectedly")
        return share(own, index, *given)

    monkeypatch.setattr(ImageFilesTask, "train_share", ended)
    stopped = True
    outcome = engine.train()
    assert (outcome.step, outcome.result) == (2, None)
    stopped = False
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        Engine(experiment, tmp_path / "run", cpu=True, resume=True).train()


@pytest.mark.parametrize("setting", [{"crop": 0.0}, {"evaluated": 0}, {"mixup": -1.0}, {"augmix": 1.5}])
def test_wrong_settings(setting: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"task.{next(iter(setting))}"):
        ImageFilesConfig(**setting).build(ViTConfig(), seed=0)


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--data FOLDER must name"):
        ImageFilesConfig().build(ViTConfig(), seed=0).files()
    folder = imagenet_folder(tmp_path)
    (folder / "train" / "n00000001" / "3.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"n00000001/3\.png cannot be read"):
        for index in range(3):
            task(folder).train_batch(index, 6, "cpu")
    with pytest.raises(ValueError, match=r"^\S+n00000001/3\.png cannot be read \(.*\)$"):
        task(folder, workers=1).train_batch(0, 18, "cpu")
    (folder / "val" / "n00000002").rename(folder / "val" / "other")
    with pytest.raises(ValueError, match="train and val differ in their classes, such as 'n00000002'"):
        task(folder).files()
    (folder / "train" / "empty").mkdir()
    with pytest.raises(ValueError, match=r"train/empty has no images"):
        task(folder).files()


def test_a_packed_imagenette_takes_the_same_path(tmp_path: Path) -> None:
    own = task(imagenette_folder(tmp_path), mixup=0.0, cutmix=0.0)
    images, labels, _, _ = own.train_batch(0, 20, "cpu")
    assert images.shape == (20, 3, 16, 16)
    assert sorted(labels.tolist()) == sorted(own.files()["train"].labels)
    assert own.build_model().head.out_features == 10
    assert set(own.evaluate(own.build_model(), "cpu")) == {"test/accuracy", "test/top5", "test/loss"}
    recipe = get_recipe("vision/imagenette-files-p12").build()
    assert isinstance(recipe.task, ImageFilesConfig) and recipe.task.image_size == 96


@pytest.mark.parametrize("classes", [3, 40])
def test_a_run_draws_and_classifies_a_users_images(tmp_path: Path, classes: int) -> None:
    folder = imagenet_folder(tmp_path / "data", classes=classes, images=2)
    own, out = task(folder), tmp_path / "out"
    model = own.build_model().eval()
    assert [path.name for path in own.draw(model, "cpu", out)] == ["predictions.png"]
    found = own.own_images(folder / "val")
    assert found.images.shape == (2 * classes, 3, 16, 16)
    metrics = own.evaluate_own(model, "cpu", found, out)
    assert 0 <= metrics["own/accuracy"] <= 1
    assert len((out / "own_predictions.tsv").read_text().splitlines()) == 1 + 2 * classes


def test_a_run_knows_its_classes(tmp_path: Path) -> None:
    """Without its data it takes a user's images; on data with other classes it says so."""
    folder = imagenet_folder(tmp_path / "data", images=2)
    experiment = get_recipe("vision/imagenet-b-p16").tiny()
    experiment.task = ImageFilesConfig(data=str(folder), image_size=16, workers=0)
    experiment.model = ViTConfig(patch_size=8, d_model=16, depth=1)
    Engine(experiment, tmp_path / "run", cpu=True).train()
    moved = folder.rename(tmp_path / "moved")
    engine = load_run(tmp_path / "run", cpu=True)
    assert "own/accuracy" in evaluate_folder(engine, moved / "val")
    for split in ("train", "val"):
        (moved / split / "n00000001").rename(moved / split / "zz")
    engine.experiment.task.data = str(moved)
    with pytest.raises(ValueError, match="other classes than the run was trained on, such as 'n00000001'"):
        engine.evaluate()


@pytest.mark.parametrize("folder", [imagenet_folder, imagenette_folder])
def test_choices_are_made_on_training_images_that_are_not_trained_on(
    tmp_path: Path, folder: Callable[[Path], Path]
) -> None:
    own = task(folder(tmp_path), held_out="valid", valid_images=5, mixup=0.0, cutmix=0.0)
    everything = task(tmp_path).files()["train"]
    kept, held = own.files()["train"], own.files()["valid"]
    assert len(held.labels) == 5 and len(kept.labels) == len(everything.labels) - 5

    def pixels(files: Files | Packed) -> set[bytes]:
        return {files.image(place).tobytes() for place in range(len(files.labels))}

    assert pixels(kept) | pixels(held) == pixels(everything) and not pixels(kept) & pixels(held)
    assert set(own.evaluate(own.build_model(), "cpu")) == {"valid/accuracy", "valid/top5", "valid/loss"}
    with pytest.raises(ValueError, match="valid_images=1000 are all of"):
        task(tmp_path, held_out="valid", valid_images=1000).files()


def test_a_run_is_not_resumed_on_other_files(tmp_path: Path) -> None:
    folder = imagenet_folder(tmp_path / "data")
    experiment = get_recipe("vision/imagenet-b-p16").tiny()
    experiment.task.data, experiment.task.workers = str(folder), 0
    Engine(experiment, tmp_path / "run", cpu=True)
    image = next((folder / "train" / "n00000001").iterdir())
    image.rename(image.with_name("other.png"))
    with pytest.raises(ValueError, match="holds a run on other data"):
        Engine(experiment, tmp_path / "run", cpu=True, resume=True)


def test_a_users_images_are_cut_as_what_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = task(imagenet_folder(tmp_path, images=2))

    def transform(config: object) -> object:
        return lambda image: torch.full((3, 16, 16), float(np.asarray(image).mean()))

    class Seen(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images[:, 0, 0, 0])
            return torch.zeros(len(images), 3)

    monkeypatch.setattr(image_files, "evaluation_transform", transform)
    seen: list[torch.Tensor] = []
    own.evaluate(Seen(), "cpu")
    own.evaluate_own(Seen(), "cpu", own.own_images(tmp_path / "val"), tmp_path)
    assert torch.equal(seen[0], seen[1])


@pytest.mark.parametrize(("bits", "kept"), [(0, 1), (3, 3)])
def test_posterizing_keeps_a_bit(bits: int, kept: int) -> None:
    assert AtLeastOneBit(lambda *_: (bits,))(10.0, {}) == (kept,)


def test_timms_pipeline() -> None:
    pytest.importorskip("timm", reason="needs timm")
    config = ImageFilesConfig(image_size=32)
    image = Image.new("RGB", (60, 50), "red")
    for transform in (training_transform(config), evaluation_transform(config)):
        assert transform(image).shape == (3, 32, 32)
    strongest = ImageFilesConfig(image_size=32, auto_augment="rand-m10-n2-inc1", augmix=0.0)
    transform = training_transform(strongest)
    for seed in range(60):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        transform(image)
