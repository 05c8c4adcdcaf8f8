"""Images in time: depthwise K x K convolutions on the torus, and gates, before and after the transforms.

A program takes one channel and a block of pixels of all samples, in the order in which they are stored: taps are
scalars. What a convolution needs from neighbouring pixels is read again, it is in cache. Everything is computed in
float32.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.parameters import wrapped
from orchid.ops.kernels.sums import plus, zeros


@triton.jit
def _taps(taps, channel, K: tl.constexpr):
    """Load the K² taps of a channel."""
    loaded = ()
    for j in tl.static_range(K * K):
        loaded = loaded + (tl.load(taps + channel * (K * K) + j).to(tl.float32),)
    return loaded


@triton.jit
def _window(image, s, t, height, width, inside, K: tl.constexpr, SIGN: tl.constexpr):
    """Load the pixels (s + SIGN i, t + SIGN j), i and j from -(K // 2) to K // 2, of images on the torus."""
    pixels = ()
    for i in tl.static_range(K):
        row = wrapped(s + SIGN * (i - K // 2), height, True) * width
        for j in tl.static_range(K):
            column = wrapped(t + SIGN * (j - K // 2), width, True)
            pixels = pixels + (tl.load(image + row + column, mask=inside, other=0.0).to(tl.float32),)
    return pixels


@triton.jit
def _convolved(pixels, taps, constant, offset, K: tl.constexpr):
    """Return constant + the sum of taps times pixels, each with its offset."""
    total = constant + taps[0] * (pixels[0] + offset)
    for j in tl.static_range(1, K * K):
        total += taps[j] * (pixels[j] + offset)
    return total


@triton.jit
def _places(first, batch, height, width, BLOCK: tl.constexpr):
    """Return pixels of all samples by number, their samples, rows and columns, and which exist."""
    item = first + tl.arange(0, BLOCK)
    size = height * width
    inside = item < batch * size
    b, at = (item // size).to(tl.int64), item % size
    return item, b, at // width, at % width, inside


@triton.jit
def _short(
    p, offset, weight, bias, b, s, t, d, height, width, p_batch, p_channel, inside, K: tl.constexpr
):  # fmt: skip
    """Return a short-convolved stream, and the pixels and the offset that it was made of."""
    pixels = _window(p + b * p_batch + d * p_channel, s, t, height, width, inside, K, 1)
    own = tl.load(offset + d).to(tl.float32)
    return _convolved(pixels, _taps(weight, d, K), tl.load(bias + d).to(tl.float32), own, K), pixels, own


@launched
@triton.jit(do_not_specialize=["first", "batch"])
def image_signals_kernel(
    p, dy, offset, weight, bias, spatial, out, first, D, batch, height, width,
    p_batch, p_channel, dy_batch, dy_channel,
    SIDES: tl.constexpr, GRAD: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a = s_1 * v, the conditioning images and, GRAD, s_2 * dy: (1 + SIDES + GRAD, channels, B, H, W) float32."""
    own = tl.program_id(1).to(tl.int64)
    d = first + own
    item, b, s, t, inside = _places(tl.program_id(0) * BLOCK, batch, height, width, BLOCK)
    row = batch.to(tl.int64) * height * width
    plane, target = tl.num_programs(1) * row, out + own * row + item
    v, pixels, v_offset = _short(
        p, offset, weight, bias, b, s, t, d, height, width, p_batch, p_channel, inside, K
    )  # fmt: skip
    gate, _, _ = _short(p, offset, weight, bias, b, s, t, D + d, height, width, p_batch, p_channel, inside, K)
    tl.store(target, gate * v, mask=inside)
    for side in tl.static_range(SIDES):
        g = _convolved(pixels, _taps(spatial, side * D + d, K), 0.0, v_offset, K)
        tl.store(target + (1 + side) * plane, g, mask=inside)
    if GRAD:
        gate, _, _ = _short(
            p, offset, weight, bias, b, s, t, 2 * D + d, height, width, p_batch, p_channel, inside, K
        )  # fmt: skip
        grad = tl.load(dy + b * dy_batch + d * dy_channel + s * width + t, mask=inside, other=0.0).to(tl.float32)
        tl.store(target + (1 + SIDES) * plane, gate * grad, mask=inside)


@launched
@triton.jit(do_not_specialize=["first", "batch"])
def image_gate_kernel(
    p, offset, weight, bias, c, y, first, D, batch, height, width, p_batch, p_channel, y_batch, y_channel,
    K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * c; c (channels, B, H, W)."""
    own = tl.program_id(1).to(tl.int64)
    d = first + own
    item, b, s, t, inside = _places(tl.program_id(0) * BLOCK, batch, height, width, BLOCK)
    gate, _, _ = _short(p, offset, weight, bias, b, s, t, 2 * D + d, height, width, p_batch, p_channel, inside, K)
    given = tl.load(c + own * batch * height * width + item, mask=inside, other=0.0)
    target = y + b * y_batch + d * y_channel + s * width + t
    tl.store(target, (gate * given).to(y.dtype.element_ty), mask=inside)


@launched
@triton.jit(do_not_specialize=["first", "batch"])
def image_products_kernel(
    p, dy, offset, weight, bias, grads, out, first, D, batch, height, width, p_batch, p_channel, dy_batch, dy_channel,
    SIDES: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the short-convolved v, s_1, s_2: da s_1, da v, c dy, (3, channels, B, H, W).

    grads (2 + SIDES, channels, B, H, W): da, those of the conditioning images, c.
    """
    own = tl.program_id(1).to(tl.int64)
    d = first + own
    item, b, s, t, inside = _places(tl.program_id(0) * BLOCK, batch, height, width, BLOCK)
    row = batch.to(tl.int64) * height * width
    plane, place = tl.num_programs(1) * row, own * row + item
    da = tl.load(grads + place, mask=inside, other=0.0)
    v, _, _ = _short(p, offset, weight, bias, b, s, t, d, height, width, p_batch, p_channel, inside, K)
    gate, _, _ = _short(p, offset, weight, bias, b, s, t, D + d, height, width, p_batch, p_channel, inside, K)
    c = tl.load(grads + (1 + SIDES) * plane + place, mask=inside, other=0.0)
    grad = tl.load(dy + b * dy_batch + d * dy_channel + s * width + t, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, (da * gate).to(out.dtype.element_ty), mask=inside)
    tl.store(out + plane + place, (da * v).to(out.dtype.element_ty), mask=inside)
    tl.store(out + 2 * plane + place, (c * grad).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _tap_sums(pixels, offset, grad, K: tl.constexpr):
    """Return the products of a gradient with what each tap met."""
    sums = ()
    for j in tl.static_range(K * K):
        sums = sums + (grad * (pixels[j] + offset),)
    return sums


@launched
@triton.jit(do_not_specialize=["first", "batch", "steps"])
def image_streams_grad_kernel(
    p, offset, weight, spatial, products, grads, dp, partial, first, D, batch, height, width,
    p_batch, p_channel, dp_batch, dp_channel, steps, SIDES: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write dp (B, 3 D, H W); a program takes one of v, s_1, s_2. The conditioning images are made of v.

    partial (channels, parts, 3, (1 + SIDES) K² + 2): sums of the gradients of its taps, those of the conditioning
    convolutions, of its bias and of its offset.
    """
    COUNT: tl.constexpr = (1 + SIDES) * K * K + 2
    part, own, role = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    d = first + own
    row = batch.to(tl.int64) * height * width
    plane = tl.num_programs(1) * row
    taps, own_offset = _taps(weight, role * D + d, K), tl.load(offset + role * D + d).to(tl.float32)
    sums = zeros(COUNT, BLOCK)
    for step in range(steps):
        _, b, s, t, inside = _places((part * steps + step) * BLOCK, batch, height, width, BLOCK)
        image = own * row + b * (height * width)
        pixels = _window(p + b * p_batch + (role * D + d) * p_channel, s, t, height, width, inside, K, 1)
        back = _window(products + role * plane + image, s, t, height, width, inside, K, -1)
        here = back[K * K // 2]
        dx = _convolved(back, taps, 0.0, 0.0, K)
        more = _tap_sums(pixels, own_offset, here, K)
        for side in tl.static_range(SIDES):
            conditioning = inside & (role == 0)
            back = _window(grads + (1 + side) * plane + image, s, t, height, width, conditioning, K, -1)
            dx += _convolved(back, _taps(spatial, side * D + d, K), 0.0, 0.0, K)
            more = more + _tap_sums(pixels, own_offset, back[K * K // 2], K)
        target = dp + b * dp_batch + (role * D + d) * dp_channel + s * width + t
        tl.store(target, dx.to(dp.dtype.element_ty), mask=inside)
        sums = plus(sums, more + (here, dx), COUNT)
    place = partial + ((own * tl.num_programs(0) + part) * 3 + role) * COUNT
    for j in tl.static_range(COUNT):
        tl.store(place + j, tl.sum(sums[j]))
