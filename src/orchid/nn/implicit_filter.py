"""The implicit filter: a small network of the lag, as long as the sequence at no cost in parameters."""

import math

import torch
from torch import Tensor

from orchid.nn.lag_network import FALL, FASTEST, SLOWEST, LagNetwork, embedded
from orchid.ops.checks import check_at_least, check_odd, check_positive
from orchid.ops.precision import at_least_float32, full_precision


class ImplicitFilter(LagNetwork):
    """h0[d, t] = FFN(PosEmb(t))[d] * decay_d(t) / sqrt(n) on the circle of n lags (remark in section 3.2).

    With tau the signed lag in half grids, tau(t) = 2 t / grid for 0 <= t < n / 2 and 2 (t - n) / grid above:

    1. PosEmb = (tau, cos(pi f tau), sin(pi f tau)), f = 1 ... (embedding - 1) / 2;
    2. FFN: three linear layers with sine activations that share one learned vector of frequencies, then a linear
       map to D channels without bias;
    3. decay_d = exp(-rate_d |tau|), two-sided: a bidirectional layer looks both ways alike.

    The factor 1 / sqrt(n) gives the kernel a norm, and so its spectrum a mean square, of order 1 at any length.
    There are no buffers: the grid is computed in float32 (float64 in a float64 module) whatever the module's dtype.

    Args:
        d_model: D.
        max_length: n, the number of lags.
        embedding: size of PosEmb, odd.
        width: hidden size of the FFN.
        grid: the length whose half is tau = 1; ``max_length`` unless the kernel was extended from a shorter one.

    Shape:
        () -> (D, n), negative lags wrapped to the end.

    Example:
        >>> ImplicitFilter(d_model=8, max_length=32)().shape
        torch.Size([8, 32])
    """

    def __init__(
        self, d_model: int, max_length: int, *, embedding: int = 5, width: int = 64, grid: float | None = None
    ) -> None:
        # The lag, and a cosine and a sine per frequency.
        super().__init__(d_model, check_odd("embedding", embedding), width)
        self.max_length, self.embedding = check_at_least("max_length", max_length, 1), embedding
        self.grid = float(max_length) if grid is None else check_positive("grid", grid)

    def forward(self) -> Tensor:
        """Return h0 (D, n), at least float32."""
        output = at_least_float32(self.output)
        with full_precision(output):
            decay = torch.exp(self._tau().abs() * (-FALL / self.spans()[:, None]))
            return (output / math.sqrt(self.max_length) @ self.hidden().T) * decay

    def hidden(self) -> Tensor:
        """Return the network before its output, (n, width)."""
        tau = self._tau()
        with full_precision(tau):
            return self.sines(embedded(tau, self.embedding))

    def lags(self) -> tuple[list[int], list[float]]:
        """Return n, and one position in half grids."""
        return [self.max_length], [2 / self.grid]

    def decay(self) -> tuple[float, float, float, float, float]:
        """Return unit, span, slope, fall, scale: decay_d / sqrt(n) = scale exp(fall |lag| unit / (span + slope d))."""
        slope = (FASTEST - SLOWEST) / max(1, self.d_model - 1)
        return 2 / self.grid, SLOWEST, slope, -FALL, 1 / math.sqrt(self.max_length)

    def _tau(self) -> Tensor:
        """Return the signed lags in half grids, (n,)."""
        return self.signed_lags(self.max_length, self.grid)

    def extra_repr(self) -> str:
        """Show sizes in ``print(module)``."""
        return f"{self.d_model}, {self.max_length}, embedding={self.embedding}, width={self.width}"
