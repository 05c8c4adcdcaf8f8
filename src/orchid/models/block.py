"""The block every model is made of: a mixer along the sequence, an MLP across channels."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from orchid.mixers.registry import create_mixer
from orchid.nn.mlp import MLP
from orchid.nn.norm import LayerNorm
from orchid.ops.checks import check_at_least, check_dtype, check_fraction, check_mask, check_sequence


class DropPath(nn.Module):
    """Stochastic depth: in training a share of the samples of x (B, ...) is zero, the others are scaled up for it."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = check_fraction("drop_path", share)

    def forward(self, x: Tensor) -> Tensor:
        """Drop samples."""
        if not self.share or not self.training:
            return x
        kept = x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(1 - self.share)
        return x * (kept / (1 - self.share))

    def extra_repr(self) -> str:
        """Show the share in ``print(module)``."""
        return f"{self.share}"


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
        drop_path: share of the samples that pass by the mixer, and by the MLP, in training.

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
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.d_model, self.max_length = check_at_least("d_model", d_model, 1), max_length
        if mixer_options is not None and not isinstance(mixer_options, Mapping):
            raise ValueError(f"mixer_options={mixer_options!r} must be a mapping of the mixer's keyword options")
        if isinstance(mixer, str):
            for name in {"name", "d_model", "max_length"}.intersection(mixer_options or {}):
                raise ValueError(f"mixer_options has {name!r}, which is an argument of the block")
            mixer = create_mixer(mixer, d_model, max_length, **(mixer_options or {}))
        elif not isinstance(mixer, nn.Module):
            raise ValueError(f"mixer={mixer!r} must be a name from list_mixers() or a module")
        elif mixer_options:
            raise ValueError("mixer_options need a mixer given by name; this one is built already")
        if getattr(mixer, "d_model", d_model) != d_model:
            raise ValueError(f"mixer has d_model={mixer.d_model}; expected that of the block, {d_model}")
        # a mixer that is told to stay without kernels has the rest do the same
        self.backend = "torch" if getattr(mixer, "backend", None) == "torch" else "auto"
        self.mixer_norm = LayerNorm(d_model, backend=self.backend)
        self.mixer: nn.Module = mixer
        self.mlp_norm = LayerNorm(d_model, backend=self.backend)
        self.mlp = MLP(d_model, kind=mlp, blocks=blocks, expansion=expansion, dropout=dropout, backend=self.backend)
        self.dropout, self.drop_path = nn.Dropout(check_fraction("dropout", dropout)), DropPath(drop_path)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix x along its length, then across its channels; what stands at masked positions reaches nothing."""
        check_sequence("x", x, self.d_model, self.max_length)
        check_dtype("x", x, self.mixer_norm.weight.dtype)
        if mask is not None:
            check_mask("mask", mask, x)
            x = x.masked_fill(~mask[..., None], 0.0)
        x = x + self.drop_path(self.dropout(self.mixer(self.mixer_norm(x), mask)))
        return x + self.drop_path(self.dropout(self.mlp(self.mlp_norm(x))))
