"""The static kernel of images: a small network of the lag in two dimensions."""

import math

import torch
from torch import Tensor

from orchid.nn.lag_network import FALL, LagNetwork, embedded
from orchid.ops.checks import check_at_least, check_odd
from orchid.ops.precision import at_least_float32, full_precision


class ImplicitFilter2d(LagNetwork):
    """h0[d, s, t] = FFN(PosEmb(s), PosEmb(t))[d] * decay_d(s, t) / sqrt(H W) on the torus of H x W lags.

    The one-dimensional filter (``ImplicitFilter``) with the embeddings of both signed lags side by side, and a decay
    exp(-rate_d sqrt(tau(s)² + tau(t)²)) that is the same in every direction.

    Args:
        d_model: D.
        rows: H.
        columns: W.
        embedding: size of PosEmb of one lag, odd.
        width: hidden size of the FFN.

    Shape:
        () -> (D, H, W), negative lags wrapped to the end of either axis.
    """

    def __init__(self, d_model: int, rows: int, columns: int, *, embedding: int = 5, width: int = 64) -> None:
        super().__init__(d_model, 2 * check_odd("embedding", embedding), width)
        self.rows, self.columns = check_at_least("rows", rows, 1), check_at_least("columns", columns, 1)
        self.embedding = embedding

    def forward(self, hidden: Tensor | None = None) -> Tensor:
        """Return h0 (D, H, W), at least float32; ``hidden`` is what the kernels have made of the network."""
        output, shape = at_least_float32(self.output), (self.rows, self.columns)
        with full_precision(output):
            down, across = (self.signed_lags(n, n) for n in shape)
            distance = torch.sqrt(down.square()[:, None] + across.square())
            decay = torch.exp(distance * (-FALL / self.spans()[:, None, None]))
            hidden = self.hidden() if hidden is None else hidden
            return (output / math.sqrt(math.prod(shape)) @ hidden.T).unflatten(1, shape) * decay

    def lags(self) -> tuple[list[int], list[float]]:
        """Return H and W, and one position of either axis in half grids."""
        shape = [self.rows, self.columns]
        return shape, [2 / size for size in shape]

    def hidden(self) -> Tensor:
        """Return the network before its output, (H W, width)."""
        shape = (self.rows, self.columns)
        with full_precision(self.output):
            down, across = (self.signed_lags(n, n) for n in shape)
            parts = (embedded(down, self.embedding)[:, None], embedded(across, self.embedding)[None])
            return self.sines(torch.cat([part.expand(*shape, -1) for part in parts], dim=-1).flatten(0, 1))
