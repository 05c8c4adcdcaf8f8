"""A small network with sine activations, which Hyena, Monarch-Mixer and CKConv make kernels of."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from orchid.nn.parameters import Parameters
from orchid.ops.precision import at_least_float32


class SineNetwork(nn.Module):
    """z -> W_o sin(f (W z + b)), several sine layers deep; computed in float32 at least.

    The weights are plain parameters, not linear layers: kernels are exempt from weight decay.

    Args:
        in_features: size of z.
        width: hidden size.
        hidden: number of sine layers.
        out_features: size of the output.
        bias: add a constant to the output.
        bounds: of each layer, between plus and minus which its weights and biases are drawn uniform; by default
            1 / sqrt(fan in), as for linear layers.

    Shape:
        z (length, in_features), frequency () or (width,) -> (out_features, length).
    """

    def __init__(
        self,
        in_features: int,
        width: int,
        hidden: int,
        out_features: int,
        *,
        bias: bool,
        bounds: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__()
        sizes = [in_features] + [width] * hidden
        self.weights = Parameters(torch.empty(b, a) for a, b in pairwise(sizes))
        self.biases = Parameters(torch.empty(size) for size in sizes[1:])
        self.output = nn.Parameter(torch.empty(out_features, width))
        self.output_bias = nn.Parameter(torch.empty(out_features)) if bias else None
        self.bounds = bounds or tuple(1 / math.sqrt(weight.shape[1]) for weight in (*self.weights, self.output))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights and biases of each layer uniform between plus and minus its bound."""
        last = [self.output] if self.output_bias is None else [self.output, self.output_bias]
        layers = [*([w, b] for w, b in zip(self.weights, self.biases, strict=True)), last]
        for layer, bound in zip(layers, self.bounds, strict=True):
            for parameter in layer:
                nn.init.uniform_(parameter, -bound, bound)

    def forward(self, z: Tensor, frequency: Tensor | float) -> Tensor:
        """Return the network's output at z, channels first."""
        for weight, bias in zip(self.weights(), self.biases(), strict=True):
            z = torch.sin(frequency * (z @ at_least_float32(weight).T + at_least_float32(bias)))
        y = at_least_float32(self.output) @ z.T
        return y if self.output_bias is None else y + at_least_float32(self.output_bias)[:, None]
