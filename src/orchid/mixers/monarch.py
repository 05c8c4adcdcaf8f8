"""Monarch-Mixer (M2): a gated two-sided long convolution with a residual one beside it (Fu et al., 2023)."""

from torch import Tensor

from orchid.mixers.hyena import Hyena
from orchid.nn.projections import from_channels, to_channels
from orchid.nn.short_conv import masked
from orchid.ops.checks import check_flag


class MonarchMixer(Hyena):
    """y = W_o (x_2 * (h conv (x_1 * v)) + g conv x): M2's sequence mixer, as in M2-BERT.

    Hyena's operator of order 2 with a residual: x_1, x_2 and v are projections of x through a short causal convolution,
    h and g implicit filters. The long convolution is what M2 writes as Monarch matrices: a DFT of length n = n_1 n_2 is
    two block-diagonal matrices and a twiddle between permutations, and so is its inverse. M2 is
    bidirectional in its encoders (``direction="both"``, two filter networks) and causal otherwise. The
    block-diagonal MLP that goes with it is the model's: ``blocks=4``.

    Args:
        d_model: D.
        max_length: N, the grid of the implicit filters.
        residual_conv: the term g conv x.
        kernel_size: taps of the short convolution.
        filter_embedding: size of the filters' positional embedding.
        filter_width: hidden size of the filters' networks.
        frequency: initial frequency of the filters' sines.
        direction: "both" or "forward".
        dropout: on the output.

    Shape:
        x (B, L, D), mask (B, L) bool or None -> (B, L, D).
    """

    def __init__(
        self,
        d_model: int,
        max_length: int,
        *,
        residual_conv: bool = True,
        kernel_size: int = 3,
        filter_embedding: int = 5,
        filter_width: int = 128,
        frequency: float = 10.0,
        direction: str = "both",
        dropout: float = 0.0,
    ) -> None:
        super().__init__(
            d_model,
            max_length,
            order=2,
            kernel_size=kernel_size,
            filter_embedding=filter_embedding,
            filter_width=filter_width,
            frequency=frequency,
            direction=direction,
            dropout=dropout,
        )
        if check_flag("residual_conv", residual_conv):
            self.filters.append(self._filter(filter_embedding, filter_width, frequency))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix x along its length."""
        x, pad = self.admit(x, mask)
        x1, x2, v = self.short_conv(masked(to_channels(self.in_proj, x), pad), pad).split(self.d_model, dim=1)
        conv, *residual = self.filters
        y = x2 * conv(x1 * v)
        for side in residual:
            y = y + side(x.transpose(1, 2))
        return self.dropout(from_channels(self.out_proj, y))
