"""A static convolution of rows of 256 to 8,192 in one kernel, and its gradients: the residual long convolution.

On a GPU it is asked for beyond 256, to which a matrix product serves (``ops/circulant.py``).
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.four_step.spectra import in_time, kernel_bins, scaled
from orchid.ops.kernels.four_step.transform import again, load_stages, over_columns, put_in_order, spectrum
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.octets import in_eights
from orchid.ops.kernels.streams.tiles import load_tile, samples, within


@triton.jit
def _statics(static, most, tile, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr):
    """Return h0_f over a bound on its size: see ``kernel_bins``."""
    return kernel_bins((), (), 0.0, 0.0, 0.0, again(static, tile, 0), most, most, 1.0, 0, 1, N1, N2, S)


@launched
@triton.jit(do_not_specialize=["steps"])
def four_step_conv_kernel(
    u, x, static, most, tables, twiddles, y, batch, length, x_batch, x_channel, y_batch, y_channel, steps,
    FULL: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Write y = x + h0 conv u, x and y (B, D, L), u (D, B, L)."""
    N: tl.constexpr = N1 * N2
    d = tl.program_id(0).to(tl.int64)
    x_batch, y_batch, length = in_eights(x_batch), in_eights(y_batch), in_eights(length)
    x_channel, y_channel = in_eights(x_channel), in_eights(y_channel)
    stages, t = load_stages(tables, N1, N2, S), tl.arange(0, N)[None, :]
    static, most = static + d * (S * N), most + 2 * d
    first = tl.program_id(1) * steps
    for step in range(tl.minimum(steps, tl.cdiv(batch, S) - first)):
        b, here = samples(first + step, batch, S)
        real = within(t, here, length, FULL)
        values = load_tile(u + (d * batch + b) * length, t, 0.0, real, real, FULL)
        a, a_most, a_edge, _, spoiled = scaled(values, t, real, N1, N2, S, FULL)
        h, h_im, h_edge, bound = _statics(static, most, first + step, N1, N2, S)
        re, im = spectrum(a, stages, again(twiddles, first + step, 1), N1, N2, S)
        c = in_time(
            h * re - h_im * im, h * im + h_im * re, 0.5 * h_edge * a_edge, bound * a_most * (2.0 / N) + spoiled,
            t, stages, again(twiddles, first + step, 2), N1, N2, S,
        )  # fmt: skip
        inside = here & (t < length)
        out = tl.load(x + b * x_batch + d * x_channel + t, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + b * y_batch + d * y_channel + t, (out + c).to(y.dtype.element_ty), mask=inside)


@launched
@triton.jit(do_not_specialize=["steps"])
def four_step_conv_grad_kernel(
    u, dy, static, most, tables, twiddles, du, dstatic, edges, batch, length, dy_batch, dy_channel, steps,
    FULL: tl.constexpr, N1: tl.constexpr, N2: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    """Write du (D, B, L) from dy (B, D, L), and a program's sums, dstatic and edges: see ``four_step_grad_kernel``."""
    N: tl.constexpr = N1 * N2
    COLUMNS: tl.constexpr = S * N2 // 2
    d, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dy_batch, dy_channel, length = in_eights(dy_batch), in_eights(dy_channel), in_eights(length)
    stages, t = load_stages(tables, N1, N2, S), tl.arange(0, N)[None, :]
    static, most = static + d * (S * N), most + 2 * d
    dh0, dh0_im = tl.zeros((N1, COLUMNS), tl.float32), tl.zeros((N1, COLUMNS), tl.float32)
    dh0_edge = tl.zeros((S,), tl.float32)
    first = part * steps
    for step in range(tl.minimum(steps, tl.cdiv(batch, S) - first)):
        b, here = samples(first + step, batch, S)
        real = within(t, here, length, FULL)
        grad = load_tile(dy + b * dy_batch + d * dy_channel, t, 0.0, real, real, FULL)
        e, e_most, e_edge, _, spoiled = scaled(grad, t, real, N1, N2, S, FULL)
        h, h_im, h_edge, bound = _statics(static, most, first + step, N1, N2, S)
        e_re, e_im = spectrum(e, stages, again(twiddles, first + step, 1), N1, N2, S)
        out = in_time(
            h * e_re + h_im * e_im, h * e_im - h_im * e_re, 0.5 * h_edge * e_edge,
            bound * e_most * (2.0 / N) + spoiled, t, stages, again(twiddles, first + step, 2), N1, N2, S,
        )  # fmt: skip
        at = (d * batch + b) * length + t
        tl.store(du + at, out.to(du.dtype.element_ty), mask=here & (t < length))
        values = load_tile(u + (d * batch + b) * length, t, 0.0, real, real, FULL)
        a, a_most, a_edge, _, a_spoiled = scaled(values, t, real, N1, N2, S, FULL)
        a_re, a_im = spectrum(a, stages, again(twiddles, first + step, 3), N1, N2, S)
        factor = tl.where((first + step) * S + tl.arange(0, S) < batch, a_most * e_most + spoiled + a_spoiled, 0.0)
        by_column = over_columns(factor, N2, S)
        dh0 += by_column * (a_re * e_re + a_im * e_im)
        dh0_im += by_column * (a_re * e_im - a_im * e_re)
        dh0_edge += factor * a_edge * e_edge
    place = part * tl.num_programs(0) + d
    put_in_order(dstatic + place * (S * N), dh0, N1, COLUMNS)
    put_in_order(dstatic + place * (S * N) + N1 * COLUMNS, dh0_im, N1, COLUMNS)
    tl.store(edges + place, tl.sum(dh0_edge))
