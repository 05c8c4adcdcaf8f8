"""Read third: a sequence model, tokens or signals in, any mixer inside, one output per position."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from orchid.models.block import OrchidBlock
from orchid.nn.norm import LayerNorm
from orchid.ops.checks import check_at_least, check_choice, check_fraction, check_mask

POSITIONS = ("none", "sinusoidal", "learned")


def sinusoidal_positions(length: int, d_model: int, device: torch.device) -> Tensor:
    """Return (length, d_model) sines and cosines of geometrically spaced wavelengths, as in the Transformer."""
    half = (d_model + 1) // 2
    rate = torch.exp(torch.arange(half, device=device) * (-math.log(10000.0) / half))
    angle = torch.arange(length, device=device)[:, None] * rate
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)[:, :d_model]


class SequenceModel(nn.Module):
    """Embedding, optional positions, a stack of blocks, a norm and a linear head on every position.

    Exactly one of ``vocab_size`` (token ids in) and ``in_features`` (real vectors in) is given.

    Args:
        d_model: D.
        max_length: N.
        depth: number of blocks.
        out_features: outputs per position.
        vocab_size: number of token ids.
        in_features: size of the input vectors.
        mixer: a mixer's name.
        options: that mixer's keyword options.
        positions: what is added to the embedding: "none", "sinusoidal" or "learned". Orchid needs none: its static
            kernel and short convolutions see distances. Attention does.
        mlp: "plain" or "gated".
        blocks: blocks on the diagonal of the MLP's matrices.
        expansion: the MLP's hidden size over d_model.
        dropout: on the embedding and in every block.

    Shape:
        tokens (B, L) integer, or signals (B, L, in_features); mask (B, L) bool or None -> (B, L, out_features).
    """

    def __init__(
        self,
        d_model: int,
        max_length: int,
        *,
        depth: int,
        out_features: int,
        vocab_size: int | None = None,
        in_features: int | None = None,
        mixer: str = "orchid",
        options: Mapping[str, Any] | None = None,
        positions: str = "none",
        mlp: str = "plain",
        blocks: int = 1,
        expansion: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_at_least("d_model", d_model, 1)
        check_at_least("depth", depth, 1)
        check_at_least("out_features", out_features, 1)
        self.max_length = check_at_least("max_length", max_length, 1)
        self.embedding: nn.Embedding | nn.Linear
        if vocab_size is not None and in_features is None:
            self.embedding = nn.Embedding(check_at_least("vocab_size", vocab_size, 1), d_model)
        elif in_features is not None and vocab_size is None:
            self.embedding = nn.Linear(check_at_least("in_features", in_features, 1), d_model)
        else:
            raise ValueError(
                f"give exactly one of vocab_size (={vocab_size!r}, for tokens) and "
                f"in_features (={in_features!r}, for signals)"
            )
        self.positions = check_choice("positions", positions, POSITIONS)
        self.position_table = nn.Parameter(torch.empty(max_length, d_model)) if positions == "learned" else None
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        built = [
            OrchidBlock(
                d_model,
                max_length,
                mixer=mixer,
                mixer_options=options,
                mlp=mlp,
                blocks=blocks,
                expansion=expansion,
                dropout=dropout,
            )
            for _ in range(depth)
        ]
        self.blocks = nn.ModuleList(built)
        self.norm = LayerNorm(d_model, backend=built[0].backend)
        self.head = nn.Linear(d_model, out_features)
        if self.position_table is not None:
            nn.init.normal_(self.position_table)

    def forward(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the outputs of every position."""
        tokens = isinstance(self.embedding, nn.Embedding)
        if inputs.ndim != (2 if tokens else 3) or inputs.is_floating_point() == tokens:
            expected = "(batch, length) integer tokens" if tokens else "(batch, length, in_features) signals"
            raise ValueError(f"inputs have shape {tuple(inputs.shape)} and dtype {inputs.dtype}; expected {expected}")
        if inputs.shape[1] > self.max_length:
            raise ValueError(f"inputs have length {inputs.shape[1]}, longer than max_length={self.max_length}")
        if isinstance(self.embedding, nn.Linear) and inputs.shape[2] != self.embedding.in_features:
            raise ValueError(
                f"inputs have {inputs.shape[2]} features; expected in_features={self.embedding.in_features}"
            )
        check_mask("mask", mask, inputs)
        if mask is not None and not tokens:
            inputs = inputs.masked_fill(~mask[..., None], 0.0)
        x = self.embedding(inputs)
        if self.position_table is not None:
            x = x + self.position_table[: x.shape[1]]
        elif self.positions == "sinusoidal":
            x = x + sinusoidal_positions(x.shape[1], x.shape[2], x.device).to(x.dtype)
        x = self.dropout(x)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


@dataclass(kw_only=True)
class SequenceConfig:
    """A sequence model's settings, less those its task knows (lengths, vocabulary, outputs)."""

    d_model: int = 64
    depth: int = 2
    mixer: str = "orchid"
    options: dict[str, Any] = field(default_factory=dict)
    positions: str = "none"
    mlp: str = "plain"
    blocks: int = 1
    expansion: int = 4
    dropout: float = 0.0

    def build(
        self, max_length: int, *, out_features: int, vocab_size: int | None = None, in_features: int | None = None
    ) -> SequenceModel:
        """Return the model for a task's sizes."""
        return SequenceModel(
            max_length=max_length,
            out_features=out_features,
            vocab_size=vocab_size,
            in_features=in_features,
            **vars(self),
        )
