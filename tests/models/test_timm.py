"""Orchid-ViT as timm's models."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

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
    assert model.head_dropout.p == 0.1 and model.dropout.p == 0.0
    model = timm.create_model(
        "orchid_vit_small_patch4_32", embed_dim=16, depth=2, mlp_ratio=2.0, proj_drop_rate=0.2, drop_path_rate=0.3,
        dtype=torch.bfloat16,
    )  # fmt: skip
    assert model.head.weight.dtype == torch.bfloat16 and model.embed_dim == 16
    assert model.blocks[1].mlp.up.out_features == 32 and model.blocks[1].mlp.dropout.p == 0.2
    assert [block.drop_path.share for block in model.blocks] == [0.0, 0.3]
    with pytest.raises(ValueError, match=r"mlp_ratio=2.5 must be a whole number"):
        timm.create_model("orchid_vit_small_patch4_32", mlp_ratio=2.5)
    with pytest.raises(ValueError, match="must be a square"):
        timm.create_model("orchid_vit_small_patch4_32", img_size=(16, 32))
    with pytest.raises(TypeError, match="unknown"):
        timm.create_model("orchid_vit_small_patch4_32", unknown=1)


def test_feature_extraction() -> None:
    model = timm.create_model("orchid_vit_small_patch4_32", features_only=True, out_indices=(0, -1), **SMALL)
    assert [y.shape for y in model(torch.randn(2, 3, 32, 32))] == [(2, 16, 8, 8)] * 2
    assert model.feature_info.channels() == [16, 16] and model.feature_info.reduction() == [4, 4]


def test_features_by_symbolic_tracing() -> None:
    model = timm.create_model(
        "orchid_vit_small_patch4_32", features_only=True, feature_cls="fx", out_indices=(0, 2), **SMALL
    )
    assert [y.shape for y in model(torch.randn(2, 3, 32, 32))] == [(2, 64, 16)] * 2


def test_weights_for_other_colours(tmp_path: Path) -> None:
    """A patch embedding for three colours is summed for one, as timm does with its own models."""
    name, file = "orchid_vit_small_patch4_32", tmp_path / "model.safetensors"
    model = timm.create_model(name, **SMALL)
    save_file(model.state_dict(), file)
    grey = timm.create_model(
        name, pretrained=True, pretrained_cfg_overlay={"file": str(file), "num_classes": 10}, in_chans=1, **SMALL
    )
    torch.testing.assert_close(grey.patch_embed.weight, model.patch_embed.weight.sum(dim=1, keepdim=True))


def test_decay_and_rates_by_depth() -> None:
    from timm.optim import param_groups_layer_decay, param_groups_weight_decay

    model = timm.create_model("orchid_vit_small_patch4_32", **SMALL)
    free, decaying = param_groups_weight_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay())
    named = {id(p): name for name, p in model.named_parameters()}
    assert all(named[id(p)].endswith("weight") for p in decaying["params"])
    assert "patch_embed.weight" in {named[id(p)] for p in decaying["params"]}
    assert any("filter.output" in named[id(p)] for p in free["params"])
    groups = param_groups_layer_decay(model, 0.05, no_weight_decay_list=model.no_weight_decay(), layer_decay=0.5)
    scales = {named[id(p)]: group["lr_scale"] for group in groups for p in group["params"]}
    assert scales["patch_embed.weight"] < scales["blocks.0.mlp.up.weight"] < scales["blocks.2.mlp.up.weight"]
    assert scales["head.weight"] == 1.0
