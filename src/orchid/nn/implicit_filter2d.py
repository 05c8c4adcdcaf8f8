"""The static kernel of images: a small network of the lag in two dimensions."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from orchid.nn.implicit_filter import FALL, FASTEST, FREQUENCY, HIDDEN_LAYERS, SLOWEST
from orchid.ops.checks import check_at_least, check_odd
from orchid.ops.spectral_conv import at_least_float32, full_precision


class ImplicitFilter2d(nn.Module):
    """h0[d, s, t] = FFN(PosEmb(s), PosEmb(t))[d] * decay_d(s, t) / sqrt(H W) on the torus of H x W lags.

    The one-dimensional filter (``ImplicitFilter``) with the embeddings of both signed lags side by side, and a decay
    exp(-rate_d sqrt(tau(s)² + tau(t)²)) that is the same in every direction.

    Args:
        d_model: D.
        height: H.
        width: W.
        embedding: size of PosEmb of one lag, odd.
        hidden: hidden size of the FFN.

    Shape:
        () -> (D, H, W), negative lags wrapped to the end of either axis.
    """

    def __init__(self, d_model: int, height: int, width: int, *, embedding: int = 5, hidden: int = 64) -> None:
        super().__init__()
        self.d_model = check_at_least("d_model", d_model, 1)
        self.height, self.width = check_at_least("height", height, 1), check_at_least("width", width, 1)
        self.embedding = check_odd("embedding", embedding)
        sizes = [2 * embedding, *[check_at_least("hidden", hidden, 1)] * HIDDEN_LAYERS]
        self.weights = nn.ParameterList(torch.empty(o, i) for i, o in pairwise(sizes))
        self.biases = nn.ParameterList(torch.empty(o) for o in sizes[1:])
        self.output = nn.Parameter(torch.empty(d_model, hidden))
        self.frequency = nn.Parameter(torch.empty(hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw hidden weights and biases uniform in +-1 / sqrt(fan in), the output for unit variance."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            bound = 1 / math.sqrt(weight.shape[1])
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)
        bound = math.sqrt(6 / self.output.shape[1])  # a sine has variance 1/2
        nn.init.uniform_(self.output, -bound, bound)
        nn.init.constant_(self.frequency, FREQUENCY)

    def forward(self) -> Tensor:
        """Return h0 (D, H, W), at least float32."""
        output, frequency = at_least_float32(self.output), at_least_float32(self.frequency)
        with full_precision(output):
            lags = [self._tau(n) for n in (self.height, self.width)]
            rows, columns = (self._embedded(tau) for tau in lags)
            shape = (self.height, self.width, self.embedding)
            z = torch.cat((rows[:, None].expand(shape), columns[None].expand(shape)), dim=-1).flatten(0, 1)
            for weight, bias in zip(self.weights, self.biases, strict=True):
                weight, bias = frequency[:, None] * at_least_float32(weight), frequency * at_least_float32(bias)
                z = torch.sin(torch.addmm(bias, z, weight.T))
            span = torch.linspace(SLOWEST, FASTEST, self.d_model, device=output.device, dtype=output.dtype)
            distance = torch.sqrt(lags[0].square()[:, None] + lags[1].square())
            decay = torch.exp(distance * (-FALL / span[:, None, None]))
            kernel = (output / math.sqrt(self.height * self.width) @ z.T).unflatten(1, (self.height, self.width))
            return kernel * decay

    def _tau(self, n: int) -> Tensor:
        """Return the signed lags of an axis in half axes, (n,)."""
        like = at_least_float32(self.output)
        t = torch.arange(n, device=like.device, dtype=like.dtype)
        return torch.where(t < n - n // 2, t, t - n) * (2 / n)

    def _embedded(self, tau: Tensor) -> Tensor:
        """Return (tau, cosines, sines), (n, embedding)."""
        bands = torch.arange(1, self.embedding // 2 + 1, device=tau.device, dtype=tau.dtype) * math.pi
        angle = tau[:, None] * bands
        return torch.cat((tau[:, None], angle.cos(), angle.sin()), dim=1)
