"""The static kernel's spectrum in the order of the two-stage transform, and its gradient back from there."""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.dense.spectra import static_bins
from orchid.ops.kernels.four_step.transform import bins, in_order, put_in_order
from orchid.ops.kernels.launch import launched


@launched
@triton.jit(do_not_specialize=["first_d"])
def four_step_static_kernel(
    static, delta, out, most, first_d, KEPT: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr
):  # fmt: skip
    """Write h0_f of channels from first_d on, (channels, 2, N1 S N2 / 2), S times side by side, ``in_order``.

    most (channels, 2): a bound on its size, and the Nyquist bin.
    """
    COLUMNS: tl.constexpr = S * N2 // 2
    own = tl.program_id(0).to(tl.int64)
    re, im, edge = static_bins(static, delta, first_d + own, own, bins(N1, N2, S), N1 * N2, KEPT)
    row = out + own * (2 * N1 * COLUMNS)
    put_in_order(row, re, N1, COLUMNS)
    put_in_order(row + N1 * COLUMNS, im, N1, COLUMNS)
    tl.store(most + 2 * own, tl.maximum(tl.max(tl.abs(re) + tl.abs(im)), tl.abs(edge)))
    tl.store(most + 2 * own + 1, edge)


@triton.jit
def _summed(dstatic, edges, channel, channels, parts, N1: tl.constexpr, COLUMNS: tl.constexpr):
    """Return what all parts give to a channel: real and imaginary parts (N1, COLUMNS), the Nyquist bin's."""
    re, im, edge = tl.zeros((N1, COLUMNS), tl.float32), tl.zeros((N1, COLUMNS), tl.float32), 0.0
    for part in range(parts):
        place = part * channels + channel
        row = dstatic + place * (2 * N1 * COLUMNS)
        re += in_order(row, N1, COLUMNS)
        im += in_order(row + N1 * COLUMNS, N1, COLUMNS)
        edge += tl.load(edges + place)
    return re, im, edge


@triton.jit
def _first_half(x, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Sum a tile (N1, S N2 / 2) over the rows side by side, (N1, N2 / 2)."""
    if S > 1:
        x = tl.sum(tl.reshape(x, (N1, S, N2 // 2)), axis=1)
    return x


@launched
@triton.jit(do_not_specialize=["channels", "parts"])
def four_step_static_grad_kernel(
    dstatic, edges, rows, channels, parts, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr
):  # fmt: skip
    """Write the gradient of h0_f over n as complex rows (pairs, n, 2), the spectra of two channels each.

    dstatic (parts, channels, 2, N1 S N2 / 2) and edges (parts, channels) as ``four_step_grad_kernel`` writes them.
    """
    N: tl.constexpr = N1 * N2
    pair = tl.program_id(0).to(tl.int64)
    k = bins(N1, N2, 1)
    x_re, x_im, x_edge = _summed(dstatic, edges, 2 * pair, channels, parts, N1, S * N2 // 2)
    both = 2 * pair + 1 < channels
    y_re, y_im, y_edge = _summed(
        dstatic, edges, tl.where(both, 2 * pair + 1, 0), channels, tl.where(both, parts, 0), N1, S * N2 // 2
    )
    x_re, y_re = _first_half(x_re, N1, N2, S) / N, _first_half(y_re, N1, N2, S) / N
    x_im = tl.where(k == 0, 0.0, _first_half(x_im, N1, N2, S)) / N
    y_im = tl.where(k == 0, 0.0, _first_half(y_im, N1, N2, S)) / N
    row = rows + pair * (2 * N)
    tl.store(row + 2 * k, x_re - y_im)
    tl.store(row + 2 * k + 1, x_im + y_re)
    tl.store(row + 2 * (N - k), x_re + y_im, mask=k > 0)
    tl.store(row + 2 * (N - k) + 1, y_re - x_im, mask=k > 0)
    tl.store(row + N, x_edge / N)
    tl.store(row + N + 1, y_edge / N)
