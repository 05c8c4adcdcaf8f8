"""Linear layers between (B, L, D) and (B, D, L): the only place where the two layouts meet."""

import torch
from torch import Tensor, nn


class LinearToChannels(nn.Linear):
    """A linear layer that writes channels first: W x^T + b, (B, L, in) -> (B, out, L).

    One matrix product whatever the batch, stored channel by channel: no transposed copy, and rows for the transforms.
    """

    def forward(self, x: Tensor, out_features: int | None = None, *, biased: bool = True) -> Tensor:
        """Project x; with ``out_features``, onto the first that many features only.

        Not ``biased`` the bias is left to the reader: the fused kernels add it themselves.
        """
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        rows = x.flatten(0, 1).T
        if out_features is not None:  # a slice of everything would still cost a copy of its gradient
            weight, bias = weight[:out_features], bias[:out_features]
        y = torch.addmm(bias[:, None], weight, rows) if biased else weight @ rows
        return y.unflatten(1, x.shape[:2]).transpose(0, 1)


class LinearFromChannels(nn.Linear):
    """A linear layer that reads channels first: (B, in, L) -> (B, L, out), with no transposed copy."""

    def forward(self, x: Tensor) -> Tensor:
        """Project x; stored channel by channel it is one matrix, else one for each sample."""
        by_channel = x.transpose(0, 1)
        if by_channel.is_contiguous():
            y = nn.functional.linear(by_channel.flatten(1).T, self.weight, self.bias)
            return y.unflatten(0, (x.shape[0], x.shape[2]))
        return torch.baddbmm(self.bias, x.transpose(1, 2), self.weight.T.expand(x.shape[0], -1, -1))
