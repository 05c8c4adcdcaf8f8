"""CIFAR-10: files, augmentation, splits."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import cifar_folder
from PIL import Image

from orchid.tasks.cifar import load_cifar10
from orchid.tasks.vision import Cifar10Config, ViTConfig, cropped_and_flipped, normalised


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

    def test_what_is_wrong_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="is not a folder with CIFAR-10"):
            load_cifar10(tmp_path / "none", "train")
        folder = cifar_folder(tmp_path / "cifar")
        (folder / "data_batch_3.bin").write_bytes(b"x" * 100)
        with pytest.raises(ValueError, match=r"data_batch_3\.bin is damaged: 100 bytes"):
            load_cifar10(folder, "train")
        (folder / "data_batch_3.bin").unlink()
        with pytest.raises(ValueError, match=r"neither data_batch_3\.bin nor train_3\.npz"):
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


def test_normalised() -> None:
    images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    back = normalised(images) * torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)
    back += torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
    torch.testing.assert_close(back, images / 255)


class TestTask:
    def test_batches_are_functions_of_their_step(self, tmp_path: Path) -> None:
        config = Cifar10Config(data=str(cifar_folder(tmp_path)))
        one, two = (config.build(ViTConfig(), seed=3) for _ in range(2))
        one.train_batch(0, 8, "cpu")
        for a, b in zip(one.train_batch(5, 8, "cpu"), two.train_batch(5, 8, "cpu"), strict=True):
            assert torch.equal(a, b)

    def test_validation_images_are_not_trained_on(self, tmp_path: Path) -> None:
        config = Cifar10Config(data=str(cifar_folder(tmp_path)), held_out="valid", valid_images=30)
        parts = [config.build(ViTConfig(), seed=seed).data("cpu") for seed in (0, 1)]
        assert torch.equal(parts[0]["valid"][0], parts[1]["valid"][0]), "the same for every seed"
        held = {image.numpy().tobytes() for image in parts[0]["valid"][0]}
        trained = {image.numpy().tobytes() for image in parts[0]["train"][0]}
        assert (len(held), len(trained), len(held & trained)) == (30, 70, 0)
        assert "test" not in parts[0]

    def test_told_before_training(self) -> None:
        with pytest.raises(ValueError, match=r"task\.data=FOLDER"):
            Cifar10Config().build(ViTConfig(), seed=0).data("cpu")
        with pytest.raises(ValueError, match="held_out"):
            Cifar10Config(held_out="tset").build(ViTConfig(), seed=0)
