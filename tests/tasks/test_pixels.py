"""Pictures of every kind as RGB, and damaged files by name."""

from pathlib import Path

import numpy as np
import pytest
from helpers import imagenette_folder
from PIL import Image

from orchid.tasks.cifar import load_cifar10
from orchid.tasks.imagenette import load_imagenette
from orchid.tasks.pixels import load_arrays, read_rgb


def test_greys_of_16_bits_are_scaled(tmp_path: Path) -> None:
    grey = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    Image.fromarray(grey).save(tmp_path / "deep.png")
    pixels = np.asarray(read_rgb(tmp_path / "deep.png", "deep.png"))
    assert np.abs(pixels - (grey / 257)[..., None]).max() <= 0.5


def test_dark_greys_of_16_bits_stay_dark_and_other_depths_are_refused(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 200, np.uint16)).save(tmp_path / "dark.png")
    assert np.asarray(read_rgb(tmp_path / "dark.png", "dark.png")).max() == 1
    for name, pixels in (("float", np.full((4, 4), 0.5, np.float32)), ("wide", np.full((4, 4), 70_000, np.int32))):
        Image.fromarray(pixels).save(tmp_path / f"{name}.tif")
        with pytest.raises(ValueError, match=rf"{name} cannot be read \(its pixels are neither of 8 nor of 16 bits\)"):
            read_rgb(tmp_path / f"{name}.tif", name)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(tmp_path: Path, mode: str) -> None:
    image = Image.new("RGBA", (4, 2), (255, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, 2, 2))
    image.convert(mode).save(tmp_path / "clear.png")
    pixels = np.asarray(read_rgb(tmp_path / "clear.png", "clear.png"))
    assert (pixels[:, :2] == 0).all() and (pixels[:, 2:] == 255).all()


def test_any_damage_is_named(tmp_path: Path) -> None:
    """Decoders raise whatever they like: every byte of a small file is changed once."""
    file = tmp_path / "image.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (3, 3, 3), np.uint8)).save(file)
    whole = file.read_bytes()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read_rgb(file, "the image")
        except ValueError as error:
            assert str(error).startswith("the image cannot be read (")


def test_any_damage_of_an_archive_is_named(tmp_path: Path) -> None:
    file = tmp_path / "arrays.npz"
    np.savez_compressed(file, data=np.arange(50), labels=np.zeros(3, np.uint8))
    whole = file.read_bytes()
    for place in range(0, len(whole), 3):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            load_arrays(file, ("data", "labels"))
        except ValueError as error:
            assert str(error).startswith(str(file))
    file.write_bytes(whole)
    assert sorted(load_arrays(file, ("data",))) == ["data"]
    with pytest.raises(ValueError, match=r"arrays\.npz has no array 'offsets'"):
        load_arrays(file, ("data", "offsets"))


def test_labels_below_zero_and_images_of_another_size(tmp_path: Path) -> None:
    folder = imagenette_folder(tmp_path, images=2)
    with np.load(folder / "val.npz") as file:
        parts = dict(file)
    np.savez(folder / "val.npz", **{**parts, "labels": np.array([-1, 3])})
    with pytest.raises(ValueError, match=r"val\.npz: its labels do not fit its 2 images of 10 classes"):
        load_imagenette(folder, "test")
    Image.new("RGB", (224, 224)).save(tmp_path / "large.png")
    data = np.frombuffer((tmp_path / "large.png").read_bytes(), np.uint8)
    np.savez(folder / "val.npz", data=data, offsets=np.array([0, len(data)]), labels=np.array([3]))
    with pytest.raises(ValueError, match=r"image 0 has 224 x 224 pixels; expected 96 x 96"):
        load_imagenette(folder, "test")


def test_a_folder_around_the_official_one(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(ValueError, match=r"did you mean \S+cifar-10-batches-py\?"):
        load_cifar10(tmp_path, "train")
