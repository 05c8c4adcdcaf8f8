"""Images: files, augmentation, splits, predictions."""

import csv
import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import cifar_folder, imagenette_folder
from PIL import Image
from typer.testing import CliRunner, Result

from orchid.cli import app
from orchid.models.vit import ViTConfig
from orchid.recipes import get_recipe
from orchid.tasks.augment import cropped_and_flipped, erased, mixed, normalised
from orchid.tasks.cifar import load_cifar10
from orchid.tasks.image_files import ImageFilesConfig
from orchid.tasks.image_folder import read_folder
from orchid.tasks.imagenette import load_imagenette
from orchid.tasks.predictions import _short
from orchid.tasks.vision import IMAGE_SETS, ImageConfig, ImageTask
from orchid.train.engine import Engine
from orchid.train.run_folder import RunFolder


class TestFiles:
    def test_packed_and_binary_are_the_same_images(self, tmp_path: Path) -> None:
        binary = cifar_folder(tmp_path / "binary")
        packed = tmp_path / "packed"
        packed.mkdir()
        for name, split, number in [("test", "test", 0), *((f"train_{i}", "train", i) for i in range(1, 6))]:
            images, labels = load_cifar10(binary, split)
            own = slice(None) if number == 0 else slice(20 * (number - 1), 20 * number)
            pixels = images[own].permute(0, 2, 3, 1).numpy()
            strips = {}
            for half in range(2):
                file = io.BytesIO()
                Image.fromarray(pixels[10 * half : 10 * half + 10].reshape(-1, 32, 3)).save(file, "png")
                strips[f"strip_{half:02}"] = np.frombuffer(file.getvalue(), np.uint8)
            np.savez(packed / f"{name}.npz", labels=labels[own].numpy().astype(np.uint8), **strips)
        for split in ("train", "test"):
            for a, b in zip(load_cifar10(binary, split), load_cifar10(packed, split), strict=True):
                assert torch.equal(a, b)
        assert load_cifar10(binary, "train")[0].shape == (100, 3, 32, 32)

    def test_python_batches_are_the_same_images(self, tmp_path: Path) -> None:
        binary = cifar_folder(tmp_path / "binary")
        python = tmp_path / "python"
        python.mkdir()
        for path in binary.iterdir():
            rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073)
            batch = {b"data": rows[:, 1:].copy(), b"labels": rows[:, 0].tolist(), b"batch_label": b"one"}
            protocol = {"data_batch_1": 2, "data_batch_2": 4}.get(path.stem, 5)
            (python / path.stem).write_bytes(pickle.dumps(batch, protocol=protocol))
        for a, b in zip(load_cifar10(binary, "train"), load_cifar10(python, "train"), strict=True):
            assert torch.equal(a, b)

    def test_a_python_batch_runs_nothing(self, tmp_path: Path) -> None:
        class Harmful:
            def __reduce__(self) -> tuple[object, ...]:
                return (os.mkdir, (str(tmp_path / "made"),))

        (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": Harmful()}))
        with pytest.raises(ValueError, match="test_batch cannot be read"):
            load_cifar10(tmp_path, "test")
        assert not (tmp_path / "made").exists()

    @pytest.mark.parametrize("protocol", [2, 4, 5])
    def test_python_batches_by_columns_or_without_pixels(self, tmp_path: Path, protocol: int) -> None:
        columns = {b"data": np.asfortranarray(np.arange(2 * 3072, dtype=np.uint8).reshape(2, -1)), b"labels": [1, 2]}
        for batch in (columns, {}):
            (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=protocol))
            with pytest.raises(ValueError, match="not a dictionary of rows of pixels and of labels"):
                load_cifar10(tmp_path, "test")

    def test_imagenette(self, tmp_path: Path) -> None:
        images, labels = load_imagenette(imagenette_folder(tmp_path, images=3), "test")
        assert images.shape == (3, 3, 96, 96) and images.dtype == torch.uint8 and labels.shape == (3,)
        with np.load(tmp_path / "val.npz") as file:
            parts = dict(file)
        parts["data"] = parts["data"].copy()
        parts["data"][parts["offsets"][1] : parts["offsets"][2]] = 0
        np.savez(tmp_path / "val.npz", **parts)
        with pytest.raises(ValueError, match=r"val\.npz: image 1 cannot be read"):
            load_imagenette(tmp_path, "test")
        with pytest.raises(ValueError, match="is not a folder with Imagenette"):
            load_imagenette(tmp_path / "none", "train")

    def test_what_is_wrong_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is not a folder with CIFAR-10"):
            load_cifar10(tmp_path / "none", "train")
        folder = cifar_folder(tmp_path / "cifar")
        (folder / "data_batch_3.bin").write_bytes(b"x" * 100)
        with pytest.raises(ValueError, match=r"data_batch_3\.bin is damaged: 100 bytes"):
            load_cifar10(folder, "train")
        (folder / "data_batch_3.bin").unlink()
        with pytest.raises(ValueError, match=r"none of data_batch_3\.bin, data_batch_3, train_3\.npz"):
            load_cifar10(folder, "train")
        (folder / "train_3.npz").write_bytes(b"not an archive")
        with pytest.raises(ValueError, match=r"train_3\.npz cannot be read"):
            load_cifar10(folder, "train")


def test_augmentation_moves_and_mirrors() -> None:
    image = torch.arange(1, 3 * 6 * 6 + 1.0).view(3, 6, 6)
    padded = torch.nn.functional.pad(image, (2,) * 4)
    possible = [padded[:, y : y + 6, x : x + 6] for y in range(5) for x in range(5)]
    possible += [crop.flip(2) for crop in possible]
    made = cropped_and_flipped(image.expand(400, -1, -1, -1), 2, torch.Generator().manual_seed(0))
    seen = {next(i for i, crop in enumerate(possible) if torch.equal(crop, one)) for one in made}
    assert len(seen) == len(possible), "every crop and mirror image occurs, and nothing else"
    still = cropped_and_flipped(image[None], 0, torch.Generator().manual_seed(1))[0]
    assert torch.equal(still, image) or torch.equal(still, image.flip(2))


def test_erasing() -> None:
    images = torch.ones(200, 3, 16, 16)
    made = erased(images, 0.5, torch.Generator().manual_seed(0))
    holes = (made == 0).all(dim=1).flatten(1).sum(dim=1)
    assert 60 < (holes > 0).sum() < 140
    assert set(holes[holes > 0].tolist()) == {side**2 for side in range(4, 9)}


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_mixed_images_say_how_much_of_them_is_their_own(mixup: float, cutmix: float) -> None:
    """Every image is a constant, its number: the mean of a mixed one is the mean of the two, weighted by the share."""
    numbers = torch.arange(64.0)
    images = numbers[:, None, None, None].expand(-1, 3, 16, 16)
    made, others, share = mixed(images, torch.arange(64), mixup, cutmix, torch.Generator().manual_seed(0))
    assert sorted(others.tolist()) == list(range(64))
    torch.testing.assert_close(made.mean(dim=(1, 2, 3)), share * numbers + (1 - share) * others)
    pasted = torch.isclose(made, numbers[:, None, None, None]) | torch.isclose(
        made, others[:, None, None, None].float()
    )
    share_of_pasted = pasted.flatten(1).all(dim=1).float().mean()
    assert share_of_pasted > 0.95 if not mixup else share_of_pasted < (0.8 if cutmix else 0.2)


def test_normalised() -> None:
    images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    cifar = IMAGE_SETS["cifar10"]
    back = normalised(images, cifar.mean, cifar.deviation) * torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)
    back += torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
    torch.testing.assert_close(back, images / 255)


class TestTask:
    def test_batches_are_functions_of_their_step(self, tmp_path: Path) -> None:
        config = ImageConfig(data=str(cifar_folder(tmp_path)))
        one, two = (config.build(ViTConfig(), seed=3) for _ in range(2))
        one.train_batch(0, 8, "cpu")
        for a, b in zip(one.train_batch(5, 8, "cpu"), two.train_batch(5, 8, "cpu"), strict=True):
            assert torch.equal(a, b)

    def test_validation_images_are_not_trained_on(self, tmp_path: Path) -> None:
        config = ImageConfig(data=str(cifar_folder(tmp_path)), held_out="valid", valid_images=30)
        parts = [config.build(ViTConfig(), seed=seed).data("cpu") for seed in (0, 1)]
        assert torch.equal(parts[0]["valid"][0], parts[1]["valid"][0]), "the same for every seed"
        held = {image.numpy().tobytes() for image in parts[0]["valid"][0]}
        trained = {image.numpy().tobytes() for image in parts[0]["train"][0]}
        assert (len(held), len(trained), len(held & trained)) == (30, 70, 0)
        assert "test" not in parts[0]

    def test_evaluation_tells_accuracy_and_loss(self, tmp_path: Path) -> None:
        task = ImageConfig(data=str(cifar_folder(tmp_path)), held_out="valid", valid_images=30).build(ViTConfig(), 0)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
        images, labels = task.data("cpu")["valid"]
        logits = model(task.prepared(images)).detach()
        metrics = task.evaluate(model, "cpu")
        assert metrics["valid/accuracy"] == pytest.approx((logits.argmax(-1) == labels).float().mean().item())
        assert metrics["valid/loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)

    def test_told_before_training(self) -> None:
        with pytest.raises(ValueError, match=r"--data FOLDER must name"):
            ImageConfig().build(ViTConfig(), seed=0).data("cpu")
        with pytest.raises(ValueError, match="held_out"):
            ImageConfig(held_out="tset").build(ViTConfig(), seed=0)

    def test_mixed_batches(self, tmp_path: Path) -> None:
        folder = str(imagenette_folder(tmp_path))
        config = ImageConfig(images="imagenette", data=folder, mixup=0.2, cutmix=1.0, erasing=0.5)
        task = config.build(ViTConfig(patch_size=24, d_model=16, depth=1), seed=0)
        batch = task.train_batch(0, 8, "cpu")
        loss, count = task.loss(task.build_model(), batch)
        assert len(batch) == 4 and count == 8 and torch.isfinite(loss)

    @pytest.mark.parametrize("kind", ["held", "files"])
    def test_the_share_weighs_ones_own_label(self, kind: str) -> None:
        config = ImageConfig() if kind == "held" else ImageFilesConfig()
        task = config.build(ViTConfig(), seed=0)
        logits, labels, others = torch.randn(5, 10), torch.randint(10, (5,)), torch.randint(10, (5,))
        model = torch.nn.Module()
        model.forward = lambda images: logits
        own, theirs = (F.cross_entropy(logits, y, reduction="sum", label_smoothing=0.1) for y in (labels, others))
        for share, expected in ((1.0, own), (0.0, theirs), (0.3, 0.3 * own + 0.7 * theirs)):
            loss, count = task.loss(model, (logits, labels, others, torch.full((5,), share)))
            torch.testing.assert_close(loss, expected)
            assert count == 5

    @pytest.mark.parametrize("setting", [{"mixup": -1.0}, {"erasing": 1.5}, {"valid_images": 0}])
    def test_wrong_settings(self, setting: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=f"task.{next(iter(setting))}"):
            ImageConfig(**setting).build(ViTConfig(), seed=0)

    def test_nothing_left_to_train_on(self, tmp_path: Path) -> None:
        config = ImageConfig(data=str(cifar_folder(tmp_path)), held_out="valid", valid_images=100)
        with pytest.raises(ValueError, match="are all of 100 images"):
            config.build(ViTConfig(), seed=0).data("cpu")


def test_a_run_that_changes_its_options_changes_no_recipe() -> None:
    for name in ("vision/imagenet-b-p16", "vision/cifar10-s-cc-p2"):
        experiment = get_recipe(name).build()
        experiment.model.options["kernel_size"] = 77
        assert get_recipe(name).build().model.options.get("kernel_size") != 77


def test_pictures_that_fail_take_nothing_from_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(ImageTask, "draw", fail)
    experiment = get_recipe("vision/cifar10-s-p4").tiny()
    experiment.task.data = str(cifar_folder(tmp_path / "cifar"))
    with pytest.warns(UserWarning, match="could not be drawn: no room"):
        outcome = Engine(experiment, tmp_path / "run", cpu=True).train()
    assert outcome.result is not None and (tmp_path / "run" / "result.json").is_file()


class TestWhereDataLie:
    """A run is known by what its data hold."""

    def train(self, data: Path, out: Path, *extra: str) -> Result:
        command = ["train", "vision/cifar10-s-p4", "--tiny", "--cpu", "--data", str(data), "--out", str(out), *extra]
        return CliRunner().invoke(app, command)

    def test_data_may_move_but_not_change(self, tmp_path: Path) -> None:
        data, out = cifar_folder(tmp_path / "cifar"), tmp_path / "run"
        assert self.train(data, out, "--time-limit", "0").exit_code == 0
        moved = data.rename(tmp_path / "moved")
        other = cifar_folder(tmp_path / "other", images=30)
        result = self.train(other, out, "--resume")
        assert result.exit_code == 2 and "on other data" in result.output, result.output
        result = self.train(moved, out, "--resume")
        assert result.exit_code == 0, result.output
        assert RunFolder(out).read_config()["task"]["data"] == str(moved), "found where it lies now"

    def test_a_wrong_folder_claims_none(self, tmp_path: Path) -> None:
        data, out = cifar_folder(tmp_path / "cifar"), tmp_path / "run"
        (tmp_path / "wrong").mkdir()
        assert self.train(tmp_path / "wrong", out).exit_code == 2
        assert not out.exists() and self.train(data, out).exit_code == 0

    def test_what_is_found_cannot_be_set(self, tmp_path: Path) -> None:
        result = self.train(cifar_folder(tmp_path), tmp_path / "run", "--set", "task.digest=x")
        assert result.exit_code == 2 and "found in what the run reads" in result.output

    def test_evaluation_draws_again(self, tmp_path: Path) -> None:
        data, out = cifar_folder(tmp_path / "cifar"), tmp_path / "run"
        assert self.train(data, out).exit_code == 0
        (out / "predictions.png").unlink()
        assert CliRunner().invoke(app, ["eval", str(out), "--cpu"]).exit_code == 0
        assert (out / "predictions.png").is_file()


class TestOwnImages:
    def trained(self, tmp_path: Path) -> Path:
        run = tmp_path / "run"
        folder = cifar_folder(tmp_path / "cifar")
        command = ["train", "vision/cifar10-s-p4", "--tiny", "--cpu", "--set", f"task.data={folder}", "--out", str(run)]
        assert CliRunner().invoke(app, command).exit_code == 0
        return run

    def test_a_folder_of_classes(self, tmp_path: Path) -> None:
        run, own = self.trained(tmp_path), tmp_path / "own"
        assert (run / "predictions.png").stat().st_size > 10_000
        for name, size in (("cat", (40, 64)), ("Truck", (20, 20))):
            (own / name).mkdir(parents=True)
            Image.new("RGB", size, "red").save(own / name / "a.png")
        result = CliRunner().invoke(app, ["eval", str(run), "--data", str(own), "--cpu"])
        assert result.exit_code == 0, result.output
        assert "own/accuracy" in result.output
        lines = (run / "own_predictions.tsv").read_text().splitlines()
        assert lines[0] == "file\tprediction\tlabel"
        assert [line.split("\t")[0::2] for line in lines[1:]] == [["Truck/a.png", "truck"], ["cat/a.png", "cat"]]
        assert (run / "own_predictions.png").is_file()

    def test_photos_stand_upright(self, tmp_path: Path) -> None:
        image = Image.new("RGB", (16, 16), "red")
        image.paste((0, 0, 255), (0, 0, 16, 8))  # blue above red, stored upside down
        exif = Image.Exif()
        exif[0x0112] = 3
        image.save(tmp_path / "photo.png", exif=exif)
        pixels = read_folder(tmp_path, ("cat",), 16).images[0]
        assert pixels[0, 0, 0] == 255 and pixels[2, -1, 0] == 255

    def test_without_classes(self, tmp_path: Path) -> None:
        run, own = self.trained(tmp_path), tmp_path / "own"
        own.mkdir()
        (run / "own_predictions.png").write_bytes(b"of other images")
        Image.new("L", (50, 30)).save(own / "a\ttab.jpg")
        assert CliRunner().invoke(app, ["eval", str(run), "--data", str(own), "--cpu"]).exit_code == 0
        with (run / "own_predictions.tsv").open(newline="") as file:
            rows = list(csv.reader(file, delimiter="\t"))
        assert rows[0] == ["file", "prediction"] and len(rows) == 2 and rows[1][0] == "own/a\ttab.jpg"
        assert (run / "own_predictions.png").read_bytes().startswith(b"\x89PNG")

    def test_folders_as_imagenet_names_them(self, tmp_path: Path) -> None:
        (tmp_path / "n01440764").mkdir()
        Image.new("RGB", (20, 20)).save(tmp_path / "n01440764" / "a.png")
        assert read_folder(tmp_path, IMAGE_SETS["imagenette"].classes, 8).labels.tolist() == [0]
        assert read_folder(tmp_path, ("n01440764", "n02102040"), 8).labels.tolist() == [0], "a model of ImageNet"

    def test_long_names_have_room(self, tmp_path: Path) -> None:
        assert _short("cat") == "cat" and len(_short("a_rather_long_class_name_of_number_7")) <= 18

    def test_what_is_wrong_is_named(self, tmp_path: Path) -> None:
        classes = ("cat", "dog")
        (tmp_path / ".thumbnails").mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / ".thumbnails" / "a.png")
        with pytest.raises(ValueError, match="has no images"):
            read_folder(tmp_path, classes, 8)
        (tmp_path / "dgo").mkdir()
        (tmp_path / "dgo" / "a.png").write_bytes(b"no image")
        with pytest.raises(ValueError, match=r"no class 'dgo'; did you mean 'dog'\?; it knows cat, dog"):
            read_folder(tmp_path, classes, 8)
        (tmp_path / "dgo").rename(tmp_path / "dog")
        with pytest.raises(ValueError, match=r"a\.png cannot be read"):
            read_folder(tmp_path, classes, 8)
        (tmp_path / "b.png").write_bytes(b"no image")
        with pytest.raises(ValueError, match=r"others beside them, such as b\.png"):
            read_folder(tmp_path, classes, 8)
