"""Read first: the Orchid operator defined in O(L^2) sums, in the paper's order.

Slow on purpose and written to be checked by eye: index matrices and explicit DFT/DCT matrices, no FFT, no shared code
with the fast path. Every fast path is tested against these functions, output and gradients, in float64.

Notation (docs/math.md): time along the last axis, any leading axes; N the layer's length, n the transform length (N if
circular, 2 N if linear), F the number of bins; ``keep`` is 1 at real tokens and 0 at masked ones.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# --- Section 2: convolutions ------------------------------------------------------------------------------------------


def circular_convolution(h: Tensor, x: Tensor) -> Tensor:
    """y[t] = sum_l h[(t - l) mod n] x[l], for h and x (..., n)."""
    n = x.shape[-1]
    t = torch.arange(n)
    lag = (t[:, None] - t[None, :]) % n
    return torch.einsum("...tl,...l->...t", h[..., lag], x)


def linear_convolution(h: Tensor, x: Tensor) -> Tensor:
    """y[t] = sum_l h[t - l] x[l] for 0 <= t < N, nothing wraps around.

    h (..., 2 N) holds the lags 0 ... N - 1 first and the negative lags -N ... -1 behind them; x (..., N).
    """
    length = x.shape[-1]
    t = torch.arange(length)
    lag = t[:, None] - t[None, :]
    return torch.einsum("...tl,...l->...t", h[..., lag % (2 * length)], x)


def cross_correlation(k: Tensor, q: Tensor) -> Tensor:
    """h[t] = sum_l k[l] q[(t + l) mod n], for k and q (..., n)."""
    n = k.shape[-1]
    t = torch.arange(n)
    return torch.einsum("...l,...tl->...t", k, q[..., (t[:, None] + t[None, :]) % n])


def short_convolution(x: Tensor, taps: Tensor, bias: Tensor | None = None, *, padding: str = "causal") -> Tensor:
    """Conv1d of the paper: y[t] = bias + sum_j taps[j] x[t + j - K + 1], depthwise.

    x (..., D, N), taps (D, K), bias (D,). "same" reads x[t + j - (K - 1) / 2] instead; "causal" and "same" see zeros
    outside 0 ... N - 1, "circular" is "causal" with positions taken mod N.
    """
    length, width = x.shape[-1], taps.shape[-1]
    offset = (width - 1) // 2 if padding == "same" else width - 1
    t = torch.arange(length)
    y = torch.zeros_like(x) if bias is None else bias[:, None].expand_as(x)
    for j in range(width):
        position = t + j - offset
        inside = ((position >= 0) & (position < length)) | (padding == "circular")
        y = y + taps[:, j, None] * x[..., position % length] * inside
    return y


# --- The transforms T -------------------------------------------------------------------------------------------------


def dft_matrix(n: int) -> Tensor:
    """W[k, t] = exp(-2 pi i k t / n), complex128 (n, n)."""
    k = torch.arange(n, dtype=torch.float64)
    return torch.polar(torch.ones(n, n, dtype=torch.float64), -2 * math.pi * k[:, None] * k[None, :] / n)


def dct_matrix(n: int) -> Tensor:
    """C[k, t] = s_k cos(pi k (2 t + 1) / (2 n)), orthonormal, float64 (n, n)."""
    k = torch.arange(n, dtype=torch.float64)
    matrix = math.sqrt(2 / n) * torch.cos(math.pi * k[:, None] * (2 * k[None, :] + 1) / (2 * n))
    matrix[0] = math.sqrt(1 / n)
    return matrix


def transform(x: Tensor, kind: str, norm: str = "ortho") -> Tensor:
    """Return T x: the first n // 2 + 1 DFT bins, or the n DCT-II coefficients, of x (..., n)."""
    n = x.shape[-1]
    if kind == "dft":
        matrix = dft_matrix(n)[: n // 2 + 1] / (math.sqrt(n) if norm == "ortho" else 1.0)
        return torch.einsum("kt,...t->...k", matrix, x.to(matrix.dtype))
    matrix = dct_matrix(n)
    if norm == "backward":  # 2 sum_t x[t] cos(...)
        matrix = matrix * math.sqrt(2 * n)
        matrix[0] *= math.sqrt(2)
    return torch.einsum("kt,...t->...k", matrix, x)


def kernel_from_spectrum(h_f: Tensor, n: int, kind: str) -> Tensor:
    """Return the real kernel (..., n) whose multiplier is h_f (..., F).

    DFT: bins above n / 2 are the mirrored conjugates; a bin that is its own mirror (DC, Nyquist) counts by its
    real part. DCT: C^T h_f / sqrt(n).
    """
    if kind == "dct":
        return torch.einsum("kt,...k->...t", dct_matrix(n), h_f) / math.sqrt(n)
    k = torch.arange(n)
    full = torch.where(k <= n // 2, h_f[..., torch.minimum(k, n - k)], h_f[..., torch.minimum(k, n - k)].conj())
    full = torch.where((2 * k) % n == 0, full.real.to(full.dtype), full)
    return torch.einsum("kt,...k->...t", dft_matrix(n).conj() / n, full).real


def spectrum_from_kernel(h: Tensor, kind: str) -> Tensor:
    """Return the multiplier (..., F) of the kernel h (..., n): the inverse of ``kernel_from_spectrum``."""
    return transform(h, "dft", "backward") if kind == "dft" else transform(h, "dct") * math.sqrt(h.shape[-1])


# --- Section 3.2: conditioning networks -------------------------------------------------------------------------------


def spectral_convolution_over_bins(z: Tensor, taps: Tensor) -> Tensor:
    """Conv1d in the frequency domain: w[k] = sum_j taps[j] z[k + j - (K - 1) / 2], zeros outside; taps (D, K) real."""
    bins, width = z.shape[-1], taps.shape[-1]
    k = torch.arange(bins)
    w = torch.zeros_like(z)
    for j in range(width):
        position = k + j - (width - 1) // 2
        inside = (position >= 0) & (position < bins)
        w = w + taps[:, j, None] * z[..., position.clamp(0, bins - 1)] * inside
    return w


def _spatial(u: Tensor, layers: Sequence[Tensor], padding: str, keep: Tensor) -> Tensor:
    for taps in layers:
        u = short_convolution(u, taps, padding=padding) * keep
    return u


def sigma(name: str, z: Tensor) -> Tensor:
    """Return sigma(|z|) sgn(z), sgn(0) = 0: each nonlinearity acts on the magnitude alone."""
    r = z.abs()
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "identity": lambda r: r,
        "tanh": lambda r: (r.exp() - (-r).exp()) / (r.exp() + (-r).exp()),
        "sigmoid": lambda r: 1 / (1 + (-r).exp()),
        "softsign": lambda r: r / (1 + r),
        "softshrink": lambda r: torch.where(r > 0.5, r - 0.5, 0.0),
    }
    nonzero = r > 0
    direction = torch.where(nonzero, z, 1.0) / torch.where(nonzero, r, 1.0)
    return torch.where(nonzero, functions[name](r) * direction, 0.0)


def phase_conditioning(
    u: Tensor,
    spatial: Sequence[Tensor],
    spectral: Sequence[Tensor],
    *,
    n: int,
    kind: str = "dft",
    norm: str = "ortho",
    padding: str = "causal",
    keep: Tensor | None = None,
    squared: bool = False,
) -> Tensor:
    """Type I, eq. adaconv1: hx_f = Conv1d_f(|T(Conv1d_t(u))|), or of the squared magnitude.

    u (B, D, N) -> (B, D, F). ``spatial`` and ``spectral`` are the taps (D, K) of each layer, in order.
    """
    g = _spatial(u, spatial, padding, torch.ones_like(u) if keep is None else keep)
    magnitude = transform(zero_pad(g, n), kind, norm).abs()
    h_f = magnitude**2 if squared else magnitude
    for taps in spectral:
        h_f = spectral_convolution_over_bins(h_f, taps)
    return h_f


def cross_conditioning(
    u: Tensor,
    spatial_k: Sequence[Tensor],
    spatial_q: Sequence[Tensor],
    spectral: Sequence[Tensor],
    *,
    n: int,
    kind: str = "dft",
    norm: str = "ortho",
    padding: str = "causal",
    keep: Tensor | None = None,
    nonlinearity: str = "identity",
) -> Tensor:
    """Type II, eq. adaconv2_nonlinearity: hx_f = Conv1d_f(conj(T(Conv1d_k(u))) * sigma(T(Conv1d_q(u))))."""
    keep = torch.ones_like(u) if keep is None else keep
    k_f = transform(zero_pad(_spatial(u, spatial_k, padding, keep), n), kind, norm)
    q_f = transform(zero_pad(_spatial(u, spatial_q, padding, keep), n), kind, norm)
    h_f = k_f.conj() * sigma(nonlinearity, q_f)
    for taps in spectral:
        h_f = spectral_convolution_over_bins(h_f, taps)
    return h_f


def static_kernel(
    weights: Sequence[Tensor], biases: Sequence[Tensor], frequency: Tensor, *, n: int, grid: float
) -> Tensor:
    """h0[d, t] = FFN(PosEmb(t))[d] * decay_d(t) / sqrt(n), the remark on a fixed term; returns (D, n).

    t counts circular lags: t and t - n are the same position, and the signed lag tau in [-1, 1) is measured in half
    grids. PosEmb = (tau, cos(pi f tau), sin(pi f tau)) for f = 1, 2, ...; the FFN has sine activations that share
    one vector of frequencies; decay_d = exp(-rate_d |tau|) with rates from log(100) / 1.5 to log(100) / 0.3.
    """
    channels = weights[-1].shape[0]
    columns = []
    for t in range(n):
        lag = t if t < n - n // 2 else t - n
        tau = 2 * lag / grid
        bands = [math.pi * f * tau for f in range(1, weights[0].shape[1] // 2 + 1)]
        embedding = [tau, *(math.cos(a) for a in bands), *(math.sin(a) for a in bands)]
        z = torch.tensor(embedding, dtype=weights[0].dtype)
        for weight, bias in zip(weights[:-1], biases, strict=True):
            z = torch.sin(frequency * (weight @ z + bias))
        rate = math.log(100) / torch.linspace(1.5, 0.3, channels, dtype=z.dtype)
        columns.append(weights[-1] @ z * torch.exp(-rate * abs(tau)) / math.sqrt(n))
    return torch.stack(columns, dim=-1)


# --- Section 3.1 and 3.3: the data-dependent convolution and the Orchid block -----------------------------------------


def zero_pad(x: Tensor, n: int) -> Tensor:
    """Append zeros up to length n."""
    return torch.cat((x, x.new_zeros(*x.shape[:-1], n - x.shape[-1])), dim=-1)


def data_dependent_convolution(x: Tensor, h_f: Tensor, *, kind: str = "dft", boundary: str = "circular") -> Tensor:
    """Eq. adaconv: y = h * x, where h = h0 + hx(u) has the spectrum h_f; u may be x or any other sequence.

    DFT: the kernel is taken to the time domain and convolved there. DCT: y = C^T diag(h_f) C x on n samples.
    """
    length = x.shape[-1]
    n = length if boundary == "circular" else 2 * length
    if kind == "dct":
        matrix = dct_matrix(n)
        operator = torch.einsum("kt,...k,kl->...tl", matrix, h_f, matrix)
        return torch.einsum("...tl,...l->...t", operator, zero_pad(x, n))[..., :length]
    h = kernel_from_spectrum(h_f, n, kind)
    return circular_convolution(h, x) if boundary == "circular" else linear_convolution(h, x)


def gated_chain(
    v: Tensor,
    gates: Sequence[Tensor],
    condition: Tensor,
    spectra: Sequence[Callable[[Tensor], Tensor]],
    *,
    kind: str = "dft",
    boundary: str = "circular",
    keep: Tensor | None = None,
) -> Tensor:
    """Order m + 1/2: y = s_(m+1) * (h_m conv (s_m * ... (h_1 conv (s_1 * v)))).

    v and each of the m + 1 gates (B, D, N). ``spectra[i]`` maps the conditioning sequence of stage i to its kernel
    spectrum (B, D, F): ``condition`` for the first stage, the stage's own input for the later ones.
    """
    z = v
    for gate, spectrum in zip(gates[:-1], spectra, strict=True):
        z = data_dependent_convolution(gate * z, spectrum(condition), kind=kind, boundary=boundary)
        if keep is not None:
            z = z * keep
        condition = z
    return gates[-1] * z


def block_diagonal_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + bias with W the dense block-diagonal matrix of ``weight`` (blocks, out / blocks, in / blocks)."""
    y = x @ torch.block_diag(*weight).T
    return y if bias is None else y + bias
