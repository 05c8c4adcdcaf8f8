"""Orchid-ViT: an image as a sequence of patches, any mixer inside, one class for the whole."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from orchid.models.block import OrchidBlock
from orchid.nn.mixer2d import OrchidMixer2d
from orchid.ops.checks import check_at_least, check_fraction

GRID = "orchid-2d"


def sinusoidal_grid(rows: int, columns: int, d_model: int, device: torch.device) -> Tensor:
    """Return (rows * columns, d_model) sines and cosines of a grid's coordinates, half of them for each axis."""
    quarter = d_model // 4
    rate = torch.exp(torch.arange(quarter, device=device) * (-math.log(10000.0) / max(1, quarter - 1)))
    y, x = torch.meshgrid(torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij")
    angles = (axis.flatten()[:, None] * rate for axis in (y, x))
    return torch.cat([part for angle in angles for part in (angle.sin(), angle.cos())], dim=1)


class GridMixer(nn.Module):
    """A mixer of images for patches in a row: (B, H W, D) -> (B, H W, D). All patches are real: there is no mask."""

    def __init__(self, mixer: OrchidMixer2d) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the patches."""
        if mask is not None:
            raise ValueError("a mixer of images takes no mask")
        return self.mixer(x.unflatten(1, (self.mixer.height, self.mixer.width))).flatten(1, 2)


class OrchidViT(nn.Module):
    """Patches, sinusoidal positions, blocks, a norm, the mean over patches, a linear head (section 4.3).

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
    ) -> None:
        super().__init__()
        self.image_size = check_at_least("image_size", image_size, 1)
        self.patch_size = check_at_least("patch_size", patch_size, 1)
        self.in_channels = check_at_least("in_channels", in_channels, 1)
        if image_size % patch_size:
            raise ValueError(f"image_size={image_size} is not a multiple of patch_size={patch_size}")
        if check_at_least("d_model", d_model, 4) % 4:
            raise ValueError(f"d_model={d_model} is not a multiple of 4: sines and cosines of two coordinates")
        self.d_model, self.side = d_model, image_size // patch_size
        self.patch_embed = nn.Linear(in_channels * patch_size**2, d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self.blocks = nn.ModuleList(
            OrchidBlock(
                d_model,
                self.side**2,
                mixer=GridMixer(self._grid_mixer(options)) if mixer == GRID else mixer,
                mixer_options=None if mixer == GRID else options,
                mlp=mlp,
                blocks=blocks,
                expansion=expansion,
                dropout=dropout,
            )
            for _ in range(check_at_least("depth", depth, 1))
        )
        self.norm = nn.LayerNorm(d_model)
        self.head: nn.Linear | nn.Identity
        self.grad_checkpointing = False
        self.reset_classifier(num_classes)

    def _grid_mixer(self, options: Mapping[str, Any] | None) -> OrchidMixer2d:
        return OrchidMixer2d(self.d_model, self.side, self.side, **(options or {}))

    def reset_classifier(self, num_classes: int) -> None:
        """Replace the head by a new one; 0 leaves it out."""
        self.num_classes = check_at_least("num_classes", num_classes, 0)
        self.head = nn.Linear(self.d_model, num_classes) if num_classes else nn.Identity()

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Compute every block again in the backward pass instead of keeping what is inside."""
        self.grad_checkpointing = enable

    def patches(self, images: Tensor) -> Tensor:
        """Return the patches of images (B, C, H, W), row by row: (B, N, C patch_size²)."""
        expected = (self.in_channels, self.image_size, self.image_size)
        if images.dim() != 4 or images.shape[1:] != expected:
            raise ValueError(
                f"images have shape {tuple(images.shape)}; expected (batch, {', '.join(map(str, expected))})"
            )
        tiles = images.unflatten(3, (self.side, self.patch_size)).unflatten(2, (self.side, self.patch_size))
        return tiles.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

    def forward_features(self, images: Tensor) -> Tensor:
        """Return the normalised outputs of all patches, (B, N, D)."""
        x = self.patch_embed(self.patches(images))
        x = self.dropout(x + sinusoidal_grid(self.side, self.side, self.d_model, x.device).to(x.dtype))
        for block in self.blocks:
            if self.grad_checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.norm(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Return the logits of features (B, N, D), or before the head their mean (B, D)."""
        pooled = x.mean(dim=1)
        return pooled if pre_logits else self.head(pooled)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        return self.forward_head(self.forward_features(images))
