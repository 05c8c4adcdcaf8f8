"""Fine-tune an Orchid-ViT with timm: rates that fall with depth, decay where it belongs. Half a minute on a CPU.

    python examples/timm_fine_tune.py

The images are made up: squares and discs of random colour. Put your own tensors, or timm's loaders, in their place.
"""

import timm
import torch
from timm.optim import create_optimizer_v2

import orchid.models.timm  # noqa: F401  registers the models

SIDE, STEPS, BATCH = 32, 150, 64


def shapes(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (count, 3, 32, 32) of squares (0) and discs (1), and which they are."""
    labels = torch.randint(2, (count,), generator=generator)
    centre = torch.randint(10, 22, (2, count, 1, 1), generator=generator)
    size = torch.randint(5, 10, (count, 1, 1), generator=generator)
    y, x = torch.arange(SIDE)[:, None] - centre[0], torch.arange(SIDE) - centre[1]
    square, disc = torch.maximum(y.abs(), x.abs()) <= size, x**2 + y**2 <= size**2
    shape = torch.where(labels[:, None, None] == 0, square, disc)[:, None]
    colour = torch.rand(count, 3, 1, 1, generator=generator) + 0.5
    return shape * colour + 0.3 * torch.randn(count, 3, SIDE, SIDE, generator=generator), labels


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = timm.create_model("orchid_vit_small_patch4_32", num_classes=10, depth=2)  # as if it had been trained
    model.reset_classifier(2)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=3e-3, weight_decay=0.05, layer_decay=0.9)
    for step in range(1, STEPS + 1):
        images, labels = shapes(BATCH, generator)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.3f}")
    with torch.no_grad():
        images, labels = shapes(512, generator)
        accuracy = (model.eval()(images).argmax(dim=-1) == labels).float().mean()
    print(f"squares and discs told apart: {100 * accuracy:.1f} % of 512")


if __name__ == "__main__":
    main()
