"""Orchid-ViT as models of timm, once this is imported: ``timm.create_model("orchid_vit_small_patch4_32")``.

Names are orchid_vit_SIZE_patchP_IMAGE, with ``_cc`` for the cross-correlation (Type II) and ``orchid2d_vit_...`` for
the operator in two dimensions. Needs timm (extra ``vision``).
"""

from collections.abc import Callable
from typing import Any

import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model, register_notrace_module

from orchid.models.vit import GRID, LEAVES, SIZES, OrchidViT

for _leaf in LEAVES:
    register_notrace_module(_leaf)

CIFAR10 = {"num_classes": 10, "mean": (0.4914, 0.4822, 0.4465), "std": (0.2470, 0.2435, 0.2616), "crop_pct": 1.0}
IMAGENET = {"num_classes": 1000, "mean": IMAGENET_DEFAULT_MEAN, "std": IMAGENET_DEFAULT_STD, "crop_pct": 0.9}


def _architectures() -> dict[str, dict[str, Any]]:
    """Return every registered name with its architecture."""
    found = {}
    for size, image, patches in (("small", 32, (4, 2, 1)), ("medium", 32, (4, 2, 1)), ("base", 224, (16,))):
        for patch in patches:
            model = {"image_size": image, "patch_size": patch, "blocks": 4, **SIZES[size]}
            name = f"vit_{size}_patch{patch}_{image}"
            cross = {**model["options"], "conditioning": "cross"}
            found[f"orchid_{name}"] = model
            found[f"orchid_{name}_cc"] = {**model, "options": cross}
            if size != "base":  # the operator in two dimensions has no residual convolution
                found[f"orchid2d_{name}"] = {**model, "mixer": GRID}
    return found


ARCHITECTURES = _architectures()


def _config(image_size: int) -> dict[str, Any]:
    return {
        "url": "",
        "input_size": (3, image_size, image_size),
        "pool_size": None,
        "fixed_input_size": True,
        "interpolation": "bicubic",
        "first_conv": "patch_embed",
        "classifier": "head",
        "license": "apache-2.0",
        **(CIFAR10 if image_size == 32 else IMAGENET),
    }


default_cfgs = generate_default_cfgs({name: _config(model["image_size"]) for name, model in ARCHITECTURES.items()})


def _build(
    *,
    img_size: int | tuple[int, int] | None = None,
    in_chans: int = 3,
    num_classes: int = 1000,
    global_pool: str = "avg",
    drop_rate: float = 0.0,
    proj_drop_rate: float = 0.0,
    drop_path_rate: float = 0.0,
    embed_dim: int | None = None,
    mlp_ratio: float | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    **model: Any,  # an entry of ARCHITECTURES, or what the caller changed in it
) -> OrchidViT:
    """Return a model from timm's names of its settings: ``drop_rate`` is before the head, ``proj_drop_rate`` inside."""
    if img_size is not None:
        sides = {img_size} if isinstance(img_size, int) else set(img_size)
        if len(sides) > 1:
            raise ValueError(f"img_size={img_size} must be a square")
        model["image_size"] = sides.pop()
    if embed_dim is not None:
        model["d_model"] = embed_dim
    if mlp_ratio is not None:
        if mlp_ratio != int(mlp_ratio):
            raise ValueError(f"mlp_ratio={mlp_ratio} must be a whole number")
        model["expansion"] = int(mlp_ratio)
    model |= {"in_channels": in_chans, "num_classes": num_classes, "global_pool": global_pool}
    model |= {"head_dropout": drop_rate, "dropout": proj_drop_rate, "drop_path": drop_path_rate}
    return OrchidViT(**model).to(device=device, dtype=dtype)


def _entrypoint(name: str) -> Callable[..., OrchidViT]:
    def create(pretrained: bool = False, **changes: Any) -> OrchidViT:
        features = {"out_indices": 3, "feature_cls": "getter"}
        settings = {**ARCHITECTURES[name], **changes}
        return build_model_with_cfg(_build, name, pretrained, feature_cfg=features, **settings)

    create.__name__, create.__module__, create.__doc__ = name, __name__, f"Return {name}."
    return create


__all__: list[str] = []
for _name in ARCHITECTURES:
    globals()[_name] = register_model(_entrypoint(_name))
