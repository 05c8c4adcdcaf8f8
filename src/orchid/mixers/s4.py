"""S4 with a diagonal state matrix, S4D (Gu et al., 2022)."""

import torch.nn.functional as F
from torch import Tensor, nn

from orchid.mixers.base import SequenceMixer
from orchid.mixers.state_space import DiagonalSSM
from orchid.ops.checks import check_fraction


class S4(SequenceMixer):
    """y = GLU(W GELU(SSM(x))): a diagonal state-space model per channel, then a gated map across channels.

    The published layer is causal (``direction="forward"``); used bidirectionally (the default) a second kernel reads
    the sequence backwards, as S4 does it.

    Args:
        d_model: D.
        max_length: the longest input; the model itself has no limit.
        state: size of the state of each channel.
        direction: "both" or "forward".
        dropout: on the output.

    Shape:
        x (B, L, D), mask (B, L) bool or None -> (B, L, D).
    """

    def __init__(
        self, d_model: int, max_length: int, *, state: int = 64, direction: str = "both", dropout: float = 0.0
    ) -> None:
        super().__init__(d_model, max_length)
        self.ssm = DiagonalSSM(d_model, state=state, direction=direction)
        self.out_proj = nn.Linear(d_model, 2 * d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix x along its length."""
        x, _ = self.admit(x, mask)
        y = self.ssm(x.transpose(1, 2)).transpose(1, 2)
        return self.dropout(F.glu(self.out_proj(F.gelu(y)), dim=-1))
