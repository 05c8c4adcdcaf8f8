"""Orchid-ViT: an image as a sequence of patches, any mixer inside, one class for the whole."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from orchid.models.block import OrchidBlock
from orchid.nn.linear_weights import linear_weights
from orchid.nn.mixer2d import OrchidMixer2d
from orchid.nn.norm import LayerNorm
from orchid.ops.checks import check_at_least, check_choice, check_fraction

GRID = "orchid-2d"
POOLS, FORMATS = ("avg", "max", "avgmax", ""), ("NCHW", "NLC")
# The paper's sizes (table vit_arch): width, depth and the mixer's options. Its medium width is 220; blocks of 56 are
# whole vectors for matrix products, those of 55 are not. It does not give its filters' width; ImageNet's has M2's, as
# Orchid-BERT.
SIZES: dict[str, dict[str, Any]] = {
    "small": {"d_model": 128, "depth": 6, "options": {}},
    "medium": {"d_model": 224, "depth": 6, "options": {}},
    "base": {
        "d_model": 768,
        "depth": 12,
        "options": {"kernel_size": 5, "residual_conv": True, "filter_embedding": 33, "filter_width": 128},
    },
}


def sinusoidal_grid(rows: int, columns: int, d_model: int, device: torch.device) -> Tensor:
    """Return (rows * columns, d_model) sines and cosines of a grid's coordinates, half of them for each axis."""
    quarter = d_model // 4
    rate = torch.exp(torch.arange(quarter, device=device) * (-math.log(10000.0) / max(1, quarter - 1)))
    y, x = torch.meshgrid(torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij")
    angles = (axis.flatten()[:, None] * rate for axis in (y, x))
    return torch.cat([part for angle in angles for part in (angle.sin(), angle.cos())], dim=1)


class PatchEmbedding(nn.Conv2d):
    """A linear map of patches, row by row: a convolution whose stride is its size, as one matrix product.

    Args:
        in_channels: C.
        d_model: D.
        patch_size: side of a patch.
        image_size: side of the square images, a multiple of it.

    Shape:
        images (B, C, image_size, image_size) -> (B, N, D); weight (D, C, patch_size, patch_size).
    """

    def __init__(self, in_channels: int, d_model: int, patch_size: int, image_size: int) -> None:
        super().__init__(in_channels, d_model, patch_size, stride=patch_size)
        self.image_size, self.side = image_size, image_size // patch_size

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Take matrices (D, C patch_size²) too, as earlier versions saved them."""
        stored = state_dict.get(f"{prefix}weight")
        if isinstance(stored, Tensor) and stored.shape == self.weight.flatten(1).shape:
            state_dict[f"{prefix}weight"] = stored.view(self.weight.shape)
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def forward(self, images: Tensor) -> Tensor:
        """Embed the patches of images."""
        return F.linear(self.patches(images), self.weight.flatten(1), self.bias)

    def patches(self, images: Tensor) -> Tensor:
        """Return the patches of images, (B, N, C patch_size²)."""
        expected = (self.in_channels, self.image_size, self.image_size)
        if images.dim() != 4 or images.shape[1:] != expected:
            raise ValueError(
                f"images have shape {tuple(images.shape)}; expected (batch, {', '.join(map(str, expected))})"
            )
        size = (self.side, self.image_size // self.side)
        tiles = images.unflatten(3, size).unflatten(2, size)
        return tiles.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class GridMixer(nn.Module):
    """A mixer of images for patches in a row: (B, H W, D), mask (B, H W) or None -> (B, H W, D)."""

    def __init__(self, mixer: OrchidMixer2d) -> None:
        super().__init__()
        self.mixer, self.backend = mixer, mixer.backend

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the patches."""
        shape = (self.mixer.height, self.mixer.width)
        mask = None if mask is None else mask.unflatten(1, shape)
        return self.mixer(x.unflatten(1, shape), mask).flatten(1, 2)


# Symbolic tracing does not look inside these: it cannot follow their checks of what they are given.
LEAVES = (OrchidBlock, PatchEmbedding, LayerNorm)


class OrchidViT(nn.Module):
    """Patches, sinusoidal positions, blocks, a norm, the mean over patches, a linear head (section 4.3).

    Beside ``forward`` it has the methods of timm's models, which ``orchid.models.timm`` registers it with.

    Args:
        image_size: side of the square images.
        patch_size: side of a patch; it divides the image's.
        in_channels: colours.
        num_classes: classes; 0 leaves out the head.
        d_model: D, a multiple of 4.
        depth: number of blocks.
        mixer: a mixer's name, or "orchid-2d", which sees rows and columns (``OrchidMixer2d``).
        options: that mixer's keyword options.
        mlp: "plain" or "gated".
        blocks: blocks on the diagonal of the MLP's matrices; 1 is dense.
        expansion: the MLP's hidden size over d_model.
        dropout: on the embedding and in every block.
        head_dropout: before the head.
        drop_path: share of the samples that pass by the last block's mixer, and its MLP, in training; it grows from
            zero at the first block.
        global_pool: "avg", "max", their mean "avgmax", or "" for the head on every patch.

    Shape:
        images (B, in_channels, image_size, image_size) -> (B, num_classes).

    Example:
        >>> OrchidViT(32, 4, num_classes=10, d_model=32, depth=2)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        *,
        in_channels: int = 3,
        num_classes: int = 1000,
        d_model: int = 128,
        depth: int = 6,
        mixer: str = "orchid",
        options: Mapping[str, Any] | None = None,
        mlp: str = "plain",
        blocks: int = 1,
        expansion: int = 4,
        dropout: float = 0.0,
        head_dropout: float = 0.0,
        drop_path: float = 0.0,
        global_pool: str = "avg",
    ) -> None:
        super().__init__()
        check_at_least("image_size", image_size, 1)
        check_at_least("in_channels", in_channels, 1)
        check_fraction("drop_path", drop_path)
        if image_size % check_at_least("patch_size", patch_size, 1):
            raise ValueError(f"image_size={image_size} is not a multiple of patch_size={patch_size}")
        if check_at_least("d_model", d_model, 4) % 4:
            raise ValueError(f"d_model={d_model} is not a multiple of 4: sines and cosines of two coordinates")
        self.d_model, self.side = d_model, image_size // patch_size
        self.patch_embed = PatchEmbedding(in_channels, d_model, patch_size, image_size)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        built = [
            OrchidBlock(
                d_model,
                self.side**2,
                mixer=GridMixer(self._grid_mixer(options)) if mixer == GRID else mixer,
                mixer_options=None if mixer == GRID else options,
                mlp=mlp,
                blocks=blocks,
                expansion=expansion,
                dropout=dropout,
                drop_path=drop_path * number / max(1, depth - 1),
            )
            for number in range(check_at_least("depth", depth, 1))
        ]
        self.blocks = nn.ModuleList(built)
        # its mean over patches is taken in float32
        self.norm: nn.Module = LayerNorm(d_model, rounded=False, backend=built[0].backend)
        self.head_dropout = nn.Dropout(check_fraction("head_dropout", head_dropout))
        self.head: nn.Linear | nn.Identity
        self.grad_checkpointing = False
        self.num_features = self.head_hidden_size = self.embed_dim = d_model
        self.feature_info = [
            {"module": f"blocks.{i}", "num_chs": d_model, "reduction": patch_size} for i in range(depth)
        ]
        self.reset_classifier(num_classes, global_pool)

    def _grid_mixer(self, options: Mapping[str, Any] | None) -> OrchidMixer2d:
        return OrchidMixer2d(self.d_model, self.side, self.side, **(options or {}))

    def get_classifier(self) -> nn.Module:
        """Return the head."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head by a new one, 0 leaves it out; and change the pooling, where another is given."""
        if global_pool is not None:
            self.global_pool = check_choice("global_pool", global_pool, POOLS)
        self.num_classes = check_at_least("num_classes", num_classes, 0)
        like = self.patch_embed.weight
        head = partial(nn.Linear, self.d_model, device=like.device, dtype=like.dtype)
        self.head = head(num_classes) if num_classes else nn.Identity()

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Compute every block again in the backward pass instead of keeping what is inside."""
        self.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        """Return the names of parameters that should not decay: all but the matrices of linear layers."""
        matrices = {id(weight) for weight in linear_weights(self)}
        return {name for name, parameter in self.named_parameters() if id(parameter) not in matrices}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Return patterns of parameters' names from the first layer to the last, for rates that differ by depth."""
        blocks = r"^blocks\.(\d+)" if not coarse else r"^blocks\.\d+"
        return {"stem": r"^patch_embed", "blocks": [(blocks, None), (r"^norm", (99999,))]}

    def embedded(self, images: Tensor) -> Tensor:
        """Return the patches with their positions, (B, N, D)."""
        x = self.patch_embed(images)
        return self.dropout(x + sinusoidal_grid(self.side, self.side, self.d_model, x.device).to(x.dtype))

    def _through(self, block: nn.Module, x: Tensor) -> Tensor:
        if self.grad_checkpointing and torch.is_grad_enabled():
            return checkpoint(block, x, use_reentrant=False)
        return block(x)

    def forward_features(self, images: Tensor) -> Tensor:
        """Return the normalised outputs of all patches, (B, N, D)."""
        x = self.embedded(images)
        for block in self.blocks:
            x = self._through(block, x)
        return self.norm(x)

    def forward_intermediates(
        self,
        images: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Return the features and the outputs of some blocks.

        Args:
            images: (B, C, H, W).
            indices: numbers of blocks, negative ones from the end; an int is so many of the last, None is all.
            norm: apply the final norm to them.
            stop_early: run no block after the last that is asked for.
            output_fmt: "NCHW" (B, D, side, side) or "NLC" (B, N, D).
            intermediates_only: leave out the features.
        """
        check_choice("output_fmt", output_fmt, FORMATS)
        taken = self._taken(indices)
        x, outputs = self.embedded(images), []
        for number, block in enumerate(self.blocks):
            if stop_early and number > max(taken):
                break
            x = self._through(block, x)
            if number in taken:
                outputs.append(self.norm(x) if norm else x)
        if output_fmt == "NCHW":
            outputs = [y.transpose(1, 2).unflatten(2, (self.side, self.side)).contiguous() for y in outputs]
        return outputs if intermediates_only else (self.norm(x), outputs)

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the blocks after the last that is asked for; return the numbers of those asked for."""
        taken = self._taken(indices)
        self.blocks = self.blocks[: max(taken) + 1]
        if prune_norm:
            self.norm = nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return taken

    def _taken(self, indices: int | Sequence[int] | None) -> list[int]:
        depth = len(self.blocks)
        if indices is None:
            return list(range(depth))
        if isinstance(indices, int):
            if not 0 < indices <= depth:
                raise ValueError(f"indices={indices} must lie in 1 ... {depth}, the number of blocks")
            return list(range(depth - indices, depth))
        for index in indices:
            if not -depth <= index < depth:
                raise ValueError(f"indices={list(indices)} must lie in -{depth} ... {depth - 1}")
        return [index % depth for index in indices]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Return the logits of features (B, N, D), or what the head would see, (B, D)."""
        if self.global_pool:
            pools = [x.mean(dim=1)] if "avg" in self.global_pool else []
            pools += [x.amax(dim=1)] if "max" in self.global_pool else []
            x = sum(pools[1:], pools[0]) / len(pools)
        x = self.head_dropout(x)
        return x if pre_logits else self.head(x)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        return self.forward_head(self.forward_features(images))


@dataclass(kw_only=True)
class ViTConfig:
    """Settings of ``OrchidViT``."""

    patch_size: int = 4
    d_model: int = 128
    depth: int = 6
    mixer: str = "orchid"
    options: dict[str, Any] = field(default_factory=dict)
    mlp: str = "plain"
    blocks: int = 4
    expansion: int = 4
    dropout: float = 0.0

    def build(self, image_size: int, num_classes: int) -> OrchidViT:
        """Return the model."""
        return OrchidViT(
            image_size,
            self.patch_size,
            num_classes=num_classes,
            d_model=self.d_model,
            depth=self.depth,
            mixer=self.mixer,
            options=self.options,
            mlp=self.mlp,
            blocks=self.blocks,
            expansion=self.expansion,
            dropout=self.dropout,
        )
