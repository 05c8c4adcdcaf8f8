"""One sequence decides what is done to another: `context=`, Orchid's alternative to cross-attention.

A mixture of four tones, and a second, noisy recording that plays one of them in another phase. The task is to take that
tone out of the mixture. The kernel is computed from the recording and applied to the mixture; a layer that sees the
mixture alone cannot know which tone is wanted.
"""

import math

import torch
from torch import Tensor, nn

from orchid import OrchidMixer

LENGTH, TONES, BANDS, NOISE = 128, 4, 40, 0.1
STEPS, BATCH = 300, 64


def batch(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return mixtures, recordings and the wanted tones, (size, LENGTH, 1) each."""
    time = torch.arange(LENGTH) * (2 * math.pi / LENGTH)
    pitch = torch.rand(size, BANDS).argsort(dim=1)[:, :TONES] + 1  # different ones in every mixture
    angle = pitch[..., None] * time + 2 * math.pi * torch.rand(size, TONES, 1)
    mixture, wanted = angle.sin().sum(dim=1), angle[:, 0].sin()
    recording = (pitch[:, :1] * time + 2 * math.pi * torch.rand(size, 1)).sin() + NOISE * torch.randn(size, LENGTH)
    return mixture[..., None], recording[..., None], wanted[..., None]


class Selector(nn.Module):
    """Lift to channels, one Orchid layer conditioned on the recording (or not), back to one channel."""

    def __init__(self, *, listens: bool, d_model: int = 16) -> None:
        super().__init__()
        self.listens = listens
        self.lift, self.drop = nn.Linear(1, d_model), nn.Linear(d_model, 1)
        self.mixer = OrchidMixer(d_model, LENGTH, short_padding="circular")

    def forward(self, mixture: Tensor, recording: Tensor) -> Tensor:
        """Return the wanted tone, (batch, LENGTH, 1)."""
        context = self.lift(recording) if self.listens else None
        return self.drop(self.mixer(self.lift(mixture), context=context))


def explained(model: nn.Module) -> float:
    """Return the share of the wanted tone's power that the model accounts for."""
    mixture, recording, wanted = batch(500)
    with torch.no_grad():
        return 1 - float((model(mixture, recording) - wanted).square().mean() / wanted.square().mean())


def main(steps: int = STEPS) -> dict[bool, float]:
    results = {}
    for listens in (True, False):
        torch.manual_seed(0)
        model = Selector(listens=listens)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            mixture, recording, wanted = batch(BATCH)
            loss = (model(mixture, recording) - wanted).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        results[listens] = explained(model)
        print(f"{'with' if listens else 'without'} context: {100 * results[listens]:.1f} % of the tone found")
    return results


if __name__ == "__main__":
    main()
