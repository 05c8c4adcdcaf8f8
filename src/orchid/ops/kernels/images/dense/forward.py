"""Small images, forward: everything between the projections in one kernel.

A program takes one channel and goes through tiles of samples; the matrices of its convolutions and transforms stay in
shared memory.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.images.dense.tiles import (
    at,
    convolution,
    convolved,
    kernel_bins,
    operand,
    series,
    spectrum,
    static_bins,
    transforms,
    weights,
)
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.tiles import samples


@launched
@triton.jit(do_not_specialize=["batch", "steps"])
def dense_image_kernel(
    p, convs, constants, bands, totals, static, tables, y, D, batch, scale, p_batch, p_channel, y_batch, y_channel,
    steps, SIDES: tl.constexpr, LOW: tl.constexpr, H: tl.constexpr, W: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * (h conv (s_1 * v)), (B, D, H W); static (D, 2, N), tables (2, N, N)."""
    d, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    size, pixel = H * W, tl.arange(0, N)[None, :]
    waves, w = transforms(tables, N), weights(H, W, N)
    of_v, of_s = convolution(convs, 0, d, D, LOW, N), convolution(convs, 1, d, D, LOW, N)
    of_t = convolution(convs, 2, d, D, LOW, N)
    of_g, band, factor = of_v, waves[0], scale
    if SIDES:
        of_g, band = convolution(convs, 3, d, D, LOW, N), at(bands + d * (N * N), N)
        factor = scale * tl.load(totals + d)
    bins = static_bins(static, d, N)
    for step in range(steps):
        b, here = samples(part * steps + step, batch, ROWS)
        row = p + b * p_batch
        v, _ = convolved(row + d * p_channel, here, of_v, constants, 0, d, D, size, N)
        s, _ = convolved(row + (D + d) * p_channel, here, of_s, constants, 1, d, D, size, N)
        a, a_most = operand(v * s)
        made, most = a, a_most
        if SIDES:
            g, _ = convolved(row + d * p_channel, here, of_g, constants, 3, d, D, size, N)
            made, most = operand(g)
        h, h_im, bound = kernel_bins(made, most, bins, waves, band, factor, SIDES, ROWS, N)
        re, im = spectrum(a, waves)
        c = series(w * (h * re - h_im * im), w * (h * im + h_im * re), waves)
        gate, _ = convolved(row + (2 * D + d) * p_channel, here, of_t, constants, 2, d, D, size, N)
        out = gate * c * (bound * a_most * (1.0 / size))[:, None]
        tl.store(y + b * y_batch + d * y_channel + pixel, out.to(y.dtype.element_ty), mask=here & (pixel < size))
