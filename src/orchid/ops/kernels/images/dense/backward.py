"""Small images, backward: the gradients of what stands in time, and of every matrix.

1. ``dense_image_grad_kernel``: c, the gradient of s_1 * v, that of h_f.
2. ``dense_image_conditioning_grad_kernel``: from there through the frequency Conv2d and |.| to what conditions it.
3. ``dense_image_streams_grad_kernel``: through gates and short convolutions to the streams.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.images.dense.tiles import (
    at,
    back_through,
    convolution,
    convolved,
    kernel_bins,
    operand,
    put,
    series,
    spectrum,
    static_bins,
    transforms,
    weights,
)
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.tiles import samples, towards


@launched
@triton.jit(do_not_specialize=["batch", "steps"])
def dense_image_grad_kernel(
    p, dy, convs, constants, bands, totals, static, tables, grads, spectra, factors, dstatic, D, batch, scale,
    p_batch, p_channel, dy_batch, dy_channel, steps,
    SIDES: tl.constexpr, LOW: tl.constexpr, H: tl.constexpr, W: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write da and c into grads (2 + SIDES, D, B, H W), the first and the last of them.

    Also the gradients of h_f: summed over a program's samples dstatic (parts, D, 2, N), and for every sample, real
    parts alone, spectra (D, B, N) float16 times factors (D, B).
    """
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
    dh0, dh0_im = tl.zeros((N,), tl.float32), tl.zeros((N,), tl.float32)
    plane = D * batch.to(tl.int64) * size
    for step in range(steps):
        b, here = samples(part * steps + step, batch, ROWS)
        row, inside = p + b * p_batch, here & (pixel < size)
        v, _ = convolved(row + d * p_channel, here, of_v, constants, 0, d, D, size, N)
        s, _ = convolved(row + (D + d) * p_channel, here, of_s, constants, 1, d, D, size, N)
        a, a_most = operand(v * s)
        made, most = a, a_most
        if SIDES:
            g, _ = convolved(row + d * p_channel, here, of_g, constants, 3, d, D, size, N)
            made, most = operand(g)
        h, h_im, bound = kernel_bins(made, most, bins, waves, band, factor, SIDES, ROWS, N)
        re, im = spectrum(a, waves)
        target = grads + (d * batch + b) * size + pixel
        c = series(w * (h * re - h_im * im), w * (h * im + h_im * re), waves) * (bound * a_most * (1.0 / size))[:, None]
        tl.store(target + (1 + SIDES) * plane, c.to(grads.dtype.element_ty), mask=inside)
        gate, _ = convolved(row + (2 * D + d) * p_channel, here, of_t, constants, 2, d, D, size, N)
        grad = tl.load(dy + b * dy_batch + d * dy_channel + pixel, mask=inside, other=0.0).to(tl.float32)
        e, e_most = operand(gate * grad)
        e_re, e_im = spectrum(e, waves)
        da = series(w * (h * e_re + h_im * e_im), w * (h * e_im - h_im * e_re), waves)
        tl.store(target, (da * (bound * e_most * (1.0 / size))[:, None]).to(grads.dtype.element_ty), mask=inside)
        dh, dh_im = w * (re * e_re + im * e_im) * (1.0 / size), w * (re * e_im - im * e_re) * (1.0 / size)
        own = a_most * e_most
        dh0 += tl.sum(dh * own[:, None], axis=0)
        dh0_im += tl.sum(dh_im * own[:, None], axis=0)
        if SIDES:
            tl.store(spectra + (d * batch + b) * N + pixel, dh.to(tl.float16), mask=here)
            tl.store(factors + d * batch + b, own[:, None], mask=here)
    place = dstatic + (part * D + d) * (2 * N) + tl.arange(0, N)
    tl.store(place, dh0)
    tl.store(place + N, dh0_im)


@launched
@triton.jit(do_not_specialize=["batch", "steps"])
def dense_image_conditioning_grad_kernel(
    p, convs, constants, bands, totals, tables, spectra, factors, grads, dbands, D, batch, scale, p_batch, p_channel,
    steps, LOW: tl.constexpr, H: tl.constexpr, W: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of what conditions the kernel, the second of grads (3, D, B, H W).

    dbands (parts, D, N, N): that of Conv2d_f's matrix, summed over a program's samples.
    """
    d, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    size, pixel = H * W, tl.arange(0, N)[None, :]
    waves, of_g, band = transforms(tables, N), convolution(convs, 3, d, D, LOW, N), at(bands + d * (N * N), N)
    total, dband = tl.load(totals + d), tl.zeros((N, N), tl.float32)
    plane = D * batch.to(tl.int64) * size
    for step in range(steps):
        b, here = samples(part * steps + step, batch, ROWS)
        g, _ = convolved(p + b * p_batch + d * p_channel, here, of_g, constants, 3, d, D, size, N)
        g, most = operand(g)
        re, im = spectrum(g, waves)
        sizes = tl.sqrt(re * re + im * im)
        dh = tl.load(spectra + (d * batch + b) * N + pixel, mask=here, other=0.0)
        factor = tl.load(factors + d * batch + b, mask=here, other=0.0)
        met = (sizes * (most * scale)[:, None]).to(tl.bfloat16)
        dband = tl.dot(tl.trans(met), (dh.to(tl.float32) * factor).to(tl.bfloat16), dband)
        turn = towards(tl.dot(dh, tl.trans(band)), sizes)
        dg = series(turn * re, turn * im, waves) * (factor * (total * scale))
        target = grads + plane + (d * batch + b) * size + pixel
        tl.store(target, dg.to(grads.dtype.element_ty), mask=here & (pixel < size))
    put(dbands + (part * D + d) * (N * N), dband, N)


@triton.jit
def _put_sums(products, sums, made, total, place, N: tl.constexpr):
    put(products + place * (N * N), made, N)
    tl.store(sums + place, tl.sum(total))


@launched
@triton.jit(do_not_specialize=["batch", "steps"])
def dense_image_streams_grad_kernel(
    p, dy, convs, constants, grads, dp, products, sums, D, batch,
    p_batch, p_channel, dy_batch, dy_channel, dp_batch, dp_channel, steps,
    ROLE: tl.constexpr, SIDES: tl.constexpr, LOW: tl.constexpr, H: tl.constexpr, W: tl.constexpr, N: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one stream, v, s_1 or s_2 by ROLE, into dp (B, 3 D, H W).

    products (parts, 3 + SIDES, D, N, N): of its pixels with the gradients of its convolutions, v's with Conv2d_t's too,
    and sums (parts, 3 + SIDES, D) of these gradients, over a program's samples.
    """
    d, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    size, pixel = H * W, tl.arange(0, N)[None, :]
    conditioning: tl.constexpr = SIDES == 1 and ROLE == 0
    own, other = convolution(convs, ROLE, d, D, LOW, N), convolution(convs, 1 - ROLE if ROLE < 2 else 2, d, D, LOW, N)
    of_g = own
    if conditioning:
        of_g = convolution(convs, 3, d, D, LOW, N)
    made, made_g = tl.zeros((N, N), tl.float32), tl.zeros((N, N), tl.float32)
    total, total_g = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    plane = D * batch.to(tl.int64) * size
    for step in range(steps):
        b, here = samples(part * steps + step, batch, ROWS)
        row, inside = p + b * p_batch, here & (pixel < size)
        given = grads + (d * batch + b) * size + pixel
        if ROLE < 2:  # the gradient of s_1 * v, times the other one
            beside, _ = convolved(
                row + ((1 - ROLE) * D + d) * p_channel, here, other, constants, 1 - ROLE, d, D, size, N
            )
            grad = tl.load(given, mask=inside, other=0.0).to(tl.float32) * beside
        else:
            grad = tl.load(given + (1 + SIDES) * plane, mask=inside, other=0.0).to(tl.float32)
            grad *= tl.load(dy + b * dy_batch + d * dy_channel + pixel, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(row + (ROLE * D + d) * p_channel + pixel, mask=inside, other=0.0)
        made = tl.dot(tl.trans(x), grad.to(tl.bfloat16), made)
        total += tl.sum(grad, axis=1)
        dx = back_through(grad, own)
        if conditioning:
            dg = tl.load(given + plane, mask=inside, other=0.0)
            made_g = tl.dot(tl.trans(x), dg, made_g)
            total_g += tl.sum(dg.to(tl.float32), axis=1)
            dx += back_through(dg, of_g)
        target = dp + b * dp_batch + (ROLE * D + d) * dp_channel + pixel
        tl.store(target, dx.to(dp.dtype.element_ty), mask=inside)
    place = (part * (3 + SIDES) + ROLE) * D + d
    _put_sums(products, sums, made, total, place, N)
    if conditioning:
        _put_sums(products, sums, made_g, total_g, place + 3 * D, N)
