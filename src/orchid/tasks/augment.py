"""Augmentation of images on the device where they are trained on; every draw comes from the generator given."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def normalised(images: Tensor, mean: tuple[float, ...], deviation: tuple[float, ...]) -> Tensor:
    """Return images (B, 3, H, W) uint8 as float32 with mean 0 and variance 1 a colour."""
    centre, scale = (torch.tensor(v, device=images.device).view(3, 1, 1) for v in (mean, deviation))
    return (images.float() / 255 - centre) / scale


def cropped_and_flipped(images: Tensor, margin: int, generator: torch.Generator) -> Tensor:
    """Return every image (B, C, H, W) moved by up to ``margin`` pixels, zeros beyond, half of them mirrored."""
    batch, channels, height, width = images.shape
    device = images.device
    down, right = (torch.randint(2 * margin + 1, (batch, 1), generator=generator, device=device) for _ in range(2))
    mirrored = torch.rand(batch, 1, generator=generator, device=device) < 0.5
    x = torch.arange(width, device=device).expand(batch, -1)
    rows = torch.arange(height, device=device) + down  # (B, H)
    columns = torch.where(mirrored, width - 1 - x, x) + right
    padded = F.pad(images, (margin,) * 4)
    number, colour = torch.arange(batch, device=device), torch.arange(channels, device=device)
    return padded[number[:, None, None, None], colour[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]


def erased(images: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return images (B, C, H, W) of which a share loses a square, a quarter to a half of the side, to zeros."""
    batch, width = images.shape[0], images.shape[3]
    sizes = torch.randint(width // 4, width // 2 + 1, (batch, 1, 1), generator=generator, device=images.device)
    chosen = torch.rand(batch, 1, 1, generator=generator, device=images.device) < share
    return images.masked_fill((chosen & _squares(images, sizes, generator))[:, None], 0.0)


def mixed(
    images: Tensor, labels: Tensor, mixup: float, cutmix: float, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Return images (B, C, H, W) mixed with those of another order, the others' labels, and the share of one's own.

    ``mixup`` and ``cutmix`` are the parameters a of the Beta(a, a) that the share comes from; 0 leaves one out, with
    both every image has either with even odds: averaged with its partner, or with a square of it.
    """
    batch, device = len(images), images.device
    order = torch.randperm(batch, generator=generator, device=device)
    others = images[order]
    cut = 0.5 if mixup and cutmix else float(cutmix > 0)
    cuts = torch.rand(batch, 1, 1, generator=generator, device=device) < cut
    share = torch.where(cuts, _beta(cutmix, batch, generator, device), _beta(mixup, batch, generator, device))
    square = cuts & _squares(images, ((1 - share).sqrt() * min(images.shape[2:])).round().long(), generator)
    share = torch.where(cuts, 1 - square.float().mean(dim=(1, 2), keepdim=True), share)
    average = share[:, None] * images + (1 - share[:, None]) * others
    pasted = torch.where(square[:, None], others, images)
    return torch.where(cuts[:, None], pasted, average), labels[order], share.flatten()


def mixed_loss(model: nn.Module, batch: tuple[Tensor, ...], smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy with smoothed labels, and the number of images.

    A batch is images and labels, and where they are mixed the others' labels and one's own share, as from ``mixed``.
    """
    images, labels, *partner = batch
    logits = model(images).float()
    losses = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    if partner:
        others, share = partner
        theirs = F.cross_entropy(logits, others, reduction="none", label_smoothing=smoothing)
        losses = share * losses + (1 - share) * theirs
    return losses.sum(), torch.full((), len(labels), device=labels.device)


def _squares(images: Tensor, sizes: Tensor, generator: torch.Generator) -> Tensor:
    """Return (B, H, W) masks of squares of sizes (B, 1, 1), anywhere in the image."""
    batch, _, height, width = images.shape
    top, left = (
        (torch.rand(batch, 1, 1, generator=generator, device=images.device) * (side - sizes + 1)).long()
        for side in (height, width)
    )
    y, x = torch.arange(height, device=images.device)[:, None], torch.arange(width, device=images.device)
    return (y >= top) & (y < top + sizes) & (x >= left) & (x < left + sizes)


def _beta(a: float, batch: int, generator: torch.Generator, device: torch.device) -> Tensor:
    """Draw (batch, 1, 1) from Beta(a, a), the share of the first of two Gamma(a) numbers; 1 where a is 0."""
    if not a:
        return torch.ones(batch, 1, 1, device=device)
    first, second = torch._standard_gamma(torch.full((2, batch, 1, 1), a, device=device), generator=generator)
    return first / (first + second).clamp(min=1e-30)
