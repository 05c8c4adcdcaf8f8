"""Normalisation over channels, one pass over the tokens each way; a program takes several tokens at a time."""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched


@triton.jit
def _tokens(x, t, channel, size, width):
    """Load tokens (T, width) as float32, zeros beyond, and which numbers there are."""
    inside = (t < size)[:, None] & (channel < width)[None, :]
    at = t.to(tl.int64)[:, None] * width + channel[None, :]
    return tl.load(x + at, mask=inside, other=0.0).to(tl.float32), at, inside


@triton.jit
def _channels(parameter, channel, width):
    return tl.load(parameter + channel, mask=channel < width, other=0.0).to(tl.float32)[None, :]


@launched
@triton.jit(do_not_specialize=["size", "steps"])
def norm_kernel(x, weight, bias, y, moments, size, width, eps, steps, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Write y = weight (x - mean) / deviation + bias, (T, width), and moments (2, T): mean and 1 / deviation."""
    channel = tl.arange(0, WIDTH)
    scale, constant = _channels(weight, channel, width), _channels(bias, channel, width)
    for step in range(steps):
        t = (tl.program_id(0) * steps + step) * ROWS + tl.arange(0, ROWS)
        values, at, inside = _tokens(x, t, channel, size, width)
        mean = tl.sum(values, axis=1) / width
        values = tl.where(inside, values - mean[:, None], 0.0)
        rate = 1.0 / tl.sqrt(tl.sum(values * values, axis=1) / width + eps)
        result = values * rate[:, None] * scale + constant
        tl.store(y + at, result.to(y.dtype.element_ty), mask=inside)
        tl.store(moments + t, mean, mask=t < size)
        tl.store(moments + size.to(tl.int64) + t, rate, mask=t < size)


@launched
@triton.jit(do_not_specialize=["size", "steps"])
def norm_grad_kernel(dy, x, weight, moments, dx, sums, size, width, steps, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Write dx, and what a program's tokens give to the gradients of weight and bias, sums (programs, 2, width).

    With n = (x - mean) / deviation and g = weight dy, dx = (g - mean(g) - n mean(n g)) / deviation.
    """
    channel = tl.arange(0, WIDTH)
    scale = _channels(weight, channel, width)
    dweight, dbias = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    for step in range(steps):
        t = (tl.program_id(0) * steps + step) * ROWS + tl.arange(0, ROWS)
        grad, at, inside = _tokens(dy, t, channel, size, width)
        values, _, _ = _tokens(x, t, channel, size, width)
        mean = tl.load(moments + t, mask=t < size, other=0.0)
        rate = tl.load(moments + size.to(tl.int64) + t, mask=t < size, other=0.0)
        normal = tl.where(inside, (values - mean[:, None]) * rate[:, None], 0.0)
        dweight += grad * normal
        dbias += grad
        grad = grad * scale
        common = tl.sum(grad, axis=1) / width
        along = tl.sum(grad * normal, axis=1) / width
        result = (grad - common[:, None] - normal * along[:, None]) * rate[:, None]
        tl.store(dx + at, result.to(dx.dtype.element_ty), mask=inside)
    own = sums + tl.program_id(0) * 2 * width + channel
    tl.store(own, tl.sum(dweight, axis=0), mask=channel < width)
    tl.store(own + width, tl.sum(dbias, axis=0), mask=channel < width)
