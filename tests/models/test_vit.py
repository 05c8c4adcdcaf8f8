"""Orchid-ViT: patches, positions, the paper's sizes, what timm's models can do."""

import pytest
import torch
import torch.fx

from orchid.models.vit import LEAVES, OrchidViT, sinusoidal_grid
from orchid.recipes import get_recipe


def small(**changes: object) -> OrchidViT:
    return OrchidViT(**{"image_size": 16, "patch_size": 4, "num_classes": 5, "d_model": 16, "depth": 2, **changes})


class Tracer(torch.fx.Tracer):
    """Traces as timm does, which registers the leaves."""

    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        return isinstance(module, LEAVES) or super().is_leaf_module(module, name)


def test_symbolic_tracing() -> None:
    model, images = small().eval(), torch.randn(2, 3, 16, 16)
    traced = torch.fx.GraphModule(model, Tracer().trace(model))
    assert torch.equal(traced(images), model(images))


def test_patches_are_the_images_tiles_row_by_row() -> None:
    images = torch.arange(2 * 3 * 16 * 16.0).view(2, 3, 16, 16)
    patches = small().patch_embed.patches(images)
    assert patches.shape == (2, 16, 48)
    for row in range(4):
        for column in range(4):
            tile = images[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            assert torch.equal(patches[:, 4 * row + column], tile.flatten(1))


def test_a_patch_embedding_is_a_strided_convolution() -> None:
    model, images = small(), torch.randn(2, 3, 16, 16)
    convolved = torch.nn.functional.conv2d(images, model.patch_embed.weight, model.patch_embed.bias, stride=4)
    torch.testing.assert_close(model.patch_embed(images), convolved.flatten(2).transpose(1, 2))


def test_a_patch_embedding_of_before_is_a_matrix() -> None:
    model, images = small(), torch.randn(2, 3, 16, 16)
    stored = model.state_dict()
    stored["patch_embed.weight"] = stored["patch_embed.weight"].flatten(1)
    other = small()
    other.load_state_dict(stored)
    assert torch.equal(other(images), model(images))


def test_positions_tell_every_place_apart_and_know_both_axes() -> None:
    grid = sinusoidal_grid(8, 8, 32, torch.device("cpu"))
    assert torch.cdist(grid, grid).fill_diagonal_(1).min() > 0.1
    grid = grid.view(8, 8, 32)
    assert torch.equal(grid[3, :, :16], grid[3, :1, :16].expand(8, -1)), "the first half is the row's"
    assert torch.equal(grid[:, 5, 16:], grid[:1, 5, 16:].expand(8, -1)), "the second the column's"


@pytest.mark.parametrize(
    ("recipe", "paper"),
    [
        ("cifar10-s-p4", 735e3),
        ("cifar10-vit-p4", 1.2e6),
        ("cifar10-vit-monarch-p4", 607e3),
        ("cifar10-hyena-vit-p4", 1.3e6),
        ("cifar10-m2-vit-p4", 741e3),
        ("cifar10-m2-vit-p1", 741e3),
        ("cifar10-m-p1", 2e6),
        ("imagenet-b-p16", 48e6),
        ("imagenet-vit-b-p16", 87e6),
        ("imagenet-vit-monarch-b-p16", 33e6),
        ("imagenet-hyena-vit-b-p16", 88e6),
        ("imagenet-m2-vit-b-p16", 45e6),
    ],
)
def test_recipes_have_the_papers_sizes(recipe: str, paper: float) -> None:
    model = get_recipe(f"vision/{recipe}").build().model
    with torch.device("meta"):
        built = model.build(224, 1000) if recipe.startswith("imagenet") else model.build(32, 10)
    assert abs(sum(p.numel() for p in built.parameters()) / paper - 1) < 0.03


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


def test_a_new_head_is_where_the_model_is() -> None:
    model = small().bfloat16()
    model.reset_classifier(7)
    assert model(torch.randn(2, 3, 16, 16).bfloat16()).dtype == torch.bfloat16
    model = small().to("meta")
    model.reset_classifier(7)
    assert model.head.weight.is_meta


def test_pooling() -> None:
    model, images = small().eval(), torch.randn(2, 3, 16, 16)
    features = model.forward_features(images)
    for pool, expected in (
        ("max", features.amax(dim=1)),
        ("avgmax", (features.amax(dim=1) + features.mean(dim=1)) / 2),
        ("", features),
    ):
        model.reset_classifier(5, pool)
        assert torch.equal(model(images), model.head(expected))


def test_stochastic_depth_grows_with_the_blocks() -> None:
    model, images = small(depth=3, drop_path=0.8), torch.randn(256, 3, 16, 16)
    assert [block.drop_path.share for block in model.blocks] == [0.0, 0.4, 0.8]
    x = model.embedded(images)
    last = model.blocks[2]
    passed = (last(x) == x).flatten(1).all(dim=1).float().mean().item()
    assert abs(passed - 0.64) < 0.12  # both halves of the block, four standard deviations
    kept = last.drop_path(torch.ones(4096, 2, 3))
    assert set(kept.unique().tolist()) == {0.0, 5.0}, "the mean stays: 1 / (1 - 0.8)"
    assert torch.equal(model.eval()(images[:2]), model(images[:2]))


def test_the_head_drops_features_of_its_own() -> None:
    model = small(head_dropout=0.5)
    pooled = model.forward_head(torch.ones(4, 16, 16), pre_logits=True)
    assert set(pooled.unique().tolist()) == {0.0, 2.0}
    assert not model.blocks[0].dropout.p and not model.dropout.p


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
