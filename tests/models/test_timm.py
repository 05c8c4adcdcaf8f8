"""Orchid-ViT as timm's models."""

import pytest
import torch

timm = pytest.importorskip("timm", reason="needs timm")
from orchid.models.timm import ARCHITECTURES  # noqa: E402

SMALL = {"d_model": 16, "depth": 3}


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_every_name_creates_a_model(name: str) -> None:
    assert name in timm.list_models("orchid*")
    model = timm.create_model(name, num_classes=7, **SMALL).eval()
    images = torch.randn(2, *model.default_cfg["input_size"])
    with torch.no_grad():
        features = model.forward_features(images)
        assert torch.equal(model(images), model.forward_head(features))
    assert model.forward_head(features, pre_logits=True).shape == (2, model.num_features)


def test_settings_in_timms_words() -> None:
    model = timm.create_model(
        "orchid_vit_small_patch4_32", img_size=16, in_chans=1, num_classes=0, global_pool="", drop_rate=0.1, **SMALL
    )
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 16, 16)
    assert model.dropout.p == 0.1
    with pytest.raises(ValueError, match="must be a square"):
        timm.create_model("orchid_vit_small_patch4_32", img_size=(16, 32))
    with pytest.raises(TypeError, match="unknown"):
        timm.create_model("orchid_vit_small_patch4_32", unknown=1)


def test_feature_extraction() -> None:
    model = timm.create_model("orchid_vit_small_patch4_32", features_only=True, out_indices=(0, -1), **SMALL)
    assert [y.shape for y in model(torch.randn(2, 3, 32, 32))] == [(2, 16, 8, 8)] * 2
    assert model.feature_info.channels() == [16, 16] and model.feature_info.reduction() == [4, 4]


def test_decay_and_rates_by_depth() -> None:
    from timm.optim import param_groups_layer_decay, param_groups_weight_decay

    model = timm.create_model("orchid_vit_small_patch4_32", **SMALL)
    free, decaying = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    named = {id(p): name for name, p in model.named_parameters()}
    assert all(named[id(p)].endswith("weight") for p in decaying["params"])
    assert any("filter.output" in named[id(p)] for p in free["params"])
    groups = param_groups_layer_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay(), layer_decay=0.5)
    scales = {named[id(p)]: group["lr_scale"] for group in groups for p in group["params"]}
    assert scales["patch_embed.weight"] < scales["blocks.0.mlp.up.weight"] < scales["blocks.2.mlp.up.weight"]
    assert scales["head.weight"] == 1.0
