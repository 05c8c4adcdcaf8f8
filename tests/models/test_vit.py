"""Orchid-ViT: patches, positions, the paper's sizes, what timm's models can do."""

import pytest
import torch

from orchid.models.vit import SIZES, OrchidViT, sinusoidal_grid


def small(**changes: object) -> OrchidViT:
    return OrchidViT(**{"image_size": 16, "patch_size": 4, "num_classes": 5, "d_model": 16, "depth": 2, **changes})


def count(**changes: object) -> int:
    settings = {"image_size": 32, "patch_size": 4, "num_classes": 10, "blocks": 4, **changes}
    with torch.device("meta"):
        return sum(p.numel() for p in OrchidViT(**settings).parameters())


def test_patches_are_the_images_tiles_row_by_row() -> None:
    images = torch.arange(2 * 3 * 16 * 16.0).view(2, 3, 16, 16)
    patches = small().patches(images)
    assert patches.shape == (2, 16, 48)
    for row in range(4):
        for column in range(4):
            tile = images[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            assert torch.equal(patches[:, 4 * row + column], tile.flatten(1))


def test_a_patch_embedding_is_a_strided_convolution() -> None:
    model, images = small(), torch.randn(2, 3, 16, 16)
    weight = model.patch_embed.weight.view(16, 3, 4, 4)
    convolved = torch.nn.functional.conv2d(images, weight, model.patch_embed.bias, stride=4)
    torch.testing.assert_close(model.patch_embed(model.patches(images)), convolved.flatten(2).transpose(1, 2))


def test_positions_tell_every_place_apart_and_know_both_axes() -> None:
    grid = sinusoidal_grid(8, 8, 32, torch.device("cpu"))
    assert torch.cdist(grid, grid).fill_diagonal_(1).min() > 0.1
    grid = grid.view(8, 8, 32)
    assert torch.equal(grid[3, :, :16], grid[3, :1, :16].expand(8, -1)), "the first half is the row's"
    assert torch.equal(grid[:, 5, 16:], grid[:1, 5, 16:].expand(8, -1)), "the second the column's"


@pytest.mark.parametrize(
    ("changes", "paper", "share"),
    [
        ({}, 735_000, 0.03),  # Orchid-s, 4 x 4
        ({"mixer": "attention", "blocks": 1}, 1_200_000, 0.03),
        ({"mixer": "attention"}, 607_000, 0.03),
        ({"image_size": 224, "patch_size": 16, "num_classes": 1000, **SIZES["base"]}, 48_000_000, 0.03),
        ({"patch_size": 1, **SIZES["medium"]}, 2_000_000, 0.03),  # Orchid-m, 1 x 1
    ],
)
def test_sizes_of_the_paper(changes: dict[str, object], paper: int, share: float) -> None:
    assert abs(count(**changes) / paper - 1) < share


@pytest.mark.parametrize("mixer", ["orchid", "attention", "hyena", "monarch"])
def test_every_mixer_and_gradient(mixer: str) -> None:
    model = small(mixer=mixer)
    model(torch.randn(2, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_what_timm_expects() -> None:
    model, images = small(), torch.randn(2, 3, 16, 16)
    features = model.forward_features(images)
    assert features.shape == (2, 16, 16)
    assert torch.equal(model.forward_head(features), model(images))
    assert model.forward_head(features, pre_logits=True).shape == (2, 16)
    model.reset_classifier(0)
    assert torch.equal(model(images), features.mean(dim=1))
    model.reset_classifier(7)
    assert model(images).shape == (2, 7)


def test_checkpointing_changes_nothing() -> None:
    model, images = small(), torch.randn(2, 3, 16, 16)
    plain = torch.autograd.grad(model(images).square().sum(), list(model.parameters()))
    model.set_grad_checkpointing()
    again = torch.autograd.grad(model(images).square().sum(), list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"patch_size": 5}, "image_size=16 is not a multiple of patch_size=5"),
        ({"d_model": 18}, "d_model=18 is not a multiple of 4"),
        ({"num_classes": -1}, "num_classes"),
    ],
)
def test_bad_settings(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(**changes)


def test_wrong_images() -> None:
    with pytest.raises(ValueError, match=r"images have shape \(2, 3, 8, 8\); expected \(batch, 3, 16, 16\)"):
        small()(torch.zeros(2, 3, 8, 8))
