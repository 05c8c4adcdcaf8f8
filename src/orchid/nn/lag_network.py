"""The network of the lag inside implicit filters."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from orchid.nn.parameters import Parameters
from orchid.ops.checks import check_at_least
from orchid.ops.precision import at_least_float32

# Sine layers between the embedding and the output, and the initial frequency of all of them.
HIDDEN_LAYERS = 3
FREQUENCY = 3.0
# A channel's kernel falls to 1 % after this share of the half grid: from the slowest channel to the fastest.
SLOWEST, FASTEST = 1.5, 0.3
FALL = math.log(100)


class LagNetwork(nn.Module):
    """The FFN of an implicit filter: three linear layers with sines that share one learned vector of frequencies.

    A linear map to D channels without bias follows; what it is multiplied by is the filter's own.

    Args:
        d_model: D.
        inputs: size of the embedding of a lag.
        width: hidden size.
    """

    def __init__(self, d_model: int, inputs: int, width: int) -> None:
        super().__init__()
        self.d_model, self.width = check_at_least("d_model", d_model, 1), check_at_least("width", width, 1)
        sizes = [inputs, *[width] * HIDDEN_LAYERS]
        self.weights = Parameters(torch.empty(o, i) for i, o in pairwise(sizes))
        self.biases = Parameters(torch.empty(o) for o in sizes[1:])
        self.output = nn.Parameter(torch.empty(d_model, width))
        self.frequency = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw hidden weights and biases uniform in +-1 / sqrt(fan in), the output for unit variance."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)
        bound = math.sqrt(6 / self.width)  # a sine has variance 1/2
        nn.init.uniform_(self.output, -bound, bound)
        nn.init.constant_(self.frequency, FREQUENCY)

    def sines(self, z: Tensor) -> Tensor:
        """Return the network before its output, (n, width), of embedded lags (n, inputs)."""
        frequency = at_least_float32(self.frequency)
        # sin(f (W z + b)), with f on the small side: two passes over n x width instead of four, and one product for
        # all layers: on a GPU every small operation costs as much as a large one
        given = self.weights()
        weights = frequency[:, None] * at_least_float32(torch.cat(given, dim=1))
        biases = frequency * at_least_float32(torch.stack(self.biases()))
        for weight, bias in zip(weights.split([w.shape[1] for w in given], dim=1), biases, strict=True):
            z = torch.sin(torch.addmm(bias, z, weight.T))
        return z

    def hidden(self) -> Tensor:
        """Return the network before its output at all lags, (n, width)."""
        raise NotImplementedError

    def lags(self) -> tuple[list[int], list[float]]:
        """Return the number of lags of every axis, and a lag of one position in half grids."""
        raise NotImplementedError

    def spans(self) -> Tensor:
        """Return every channel's decay length in half grids, (D,)."""
        like = at_least_float32(self.output)
        return torch.linspace(SLOWEST, FASTEST, self.d_model, device=like.device, dtype=like.dtype)

    def signed_lags(self, n: int, grid: float) -> Tensor:
        """Return the lags of a circle of n in half grids, negative ones at its end, (n,)."""
        like = at_least_float32(self.output)
        ends = ((0, n - n // 2), (-(n // 2), 0))
        return torch.cat([torch.arange(*end, device=like.device, dtype=like.dtype) for end in ends]) * (2 / grid)


def embedded(tau: Tensor, size: int) -> Tensor:
    """Return PosEmb, (tau, cos(pi f tau), sin(pi f tau)) for f = 1 ... (size - 1) / 2: (n, size)."""
    bands = torch.arange(1, size // 2 + 1, device=tau.device, dtype=tau.dtype) * math.pi
    angle = tau[:, None] * bands
    return torch.cat((tau[:, None], angle.cos(), angle.sin()), dim=1)
