"""Replace the attention of a standard Transformer encoder by Orchid, and train a few steps."""

import torch
from torch import nn

from orchid import OrchidMixer


class OrchidEncoderLayer(nn.Module):
    """A pre-norm encoder layer; its mixer is the only thing that changed."""

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.mixer = OrchidMixer(d_model, max_length)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Map (batch, length, d_model) to the same; ``mask`` is True at real tokens."""
        x = x + self.mixer(self.norm1(x), mask)
        return x + self.feed_forward(self.norm2(x))


def main() -> None:
    torch.manual_seed(0)
    encoder = nn.ModuleList(OrchidEncoderLayer(32, max_length=64) for _ in range(2))
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
    for step in range(20):
        target = torch.randn(8, 50, 32)
        lengths = torch.randint(20, 51, (8, 1))
        mask = torch.arange(50) < lengths  # padding, wherever it is, never changes a valid output
        x = target.flip(1)
        for layer in encoder:
            x = layer(x, mask)
        loss = (x - target)[mask].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step:2d}  loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
