"""The block every model is made of: a mixer along the sequence, an MLP across channels."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from orchid.mixers.registry import create_mixer
from orchid.nn.block_diagonal import MLP
from orchid.ops.checks import check_at_least, check_fraction, check_mask


class OrchidBlock(nn.Module):
    """x + Mixer(Norm(x)), then x + MLP(Norm(x)) (section 3.3).

    Args:
        d_model: D.
        max_length: N.
        mixer: a name from ``list_mixers()``, or a module (x (B, L, D), mask or None) -> (B, L, D).
        mixer_options: keyword options of a named mixer.
        mlp: "plain" or "gated".
        blocks: blocks on the diagonal of the MLP's matrices; 1 is dense.
        expansion: the MLP's hidden size over d_model.
        dropout: after the mixer and inside and after the MLP.

    Shape:
        x (B, L, D), mask (B, L) bool or None -> (B, L, D).
    """

    def __init__(
        self,
        d_model: int,
        max_length: int,
        *,
        mixer: str | nn.Module = "orchid",
        mixer_options: Mapping[str, Any] | None = None,
        mlp: str = "plain",
        blocks: int = 1,
        expansion: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_at_least("d_model", d_model, 1)
        self.mixer_norm = nn.LayerNorm(d_model)
        self.mixer: nn.Module
        if isinstance(mixer, str):
            self.mixer = create_mixer(mixer, d_model, max_length, **(mixer_options or {}))
        elif mixer_options:
            raise ValueError("mixer_options are for a mixer that is named; this one is built already")
        else:
            self.mixer = mixer
        self.mlp_norm = nn.LayerNorm(d_model)
        # a mixer that is told to stay without kernels has the MLP do the same
        backend = "torch" if getattr(self.mixer, "backend", None) == "torch" else "auto"
        self.mlp = MLP(d_model, kind=mlp, blocks=blocks, expansion=expansion, dropout=dropout, backend=backend)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix x along its length, then across its channels; what stands at masked positions reaches nothing."""
        if mask is not None:
            check_mask("mask", mask, x)
            x = x.masked_fill(~mask[..., None], 0.0)
        x = x + self.dropout(self.mixer(self.mixer_norm(x), mask))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))
