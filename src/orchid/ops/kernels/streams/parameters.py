"""What a program loads of a channel before it works on its streams: taps, biases, offsets; positions on the circle."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def wrapped(t, period, CIRCULAR: tl.constexpr):
    """Return positions on the circle, where there is one."""
    if CIRCULAR:
        t = tl.where(t < 0, t + period, t)
        t = tl.where(t >= period, t - period, t)
    return t


@triton.jit
def parameters(taps, bias, offset, channel, K: tl.constexpr, BIASED: tl.constexpr):
    """Load what a short convolution of one channel needs: K taps, the bias (or zero), the stream's offset."""
    loaded = ()
    for j in tl.static_range(K):
        loaded = loaded + (tl.load(taps + channel * K + j).to(tl.float32),)
    constant = tl.load(bias + channel).to(tl.float32) if BIASED else 0.0
    return loaded + (constant, tl.load(offset + channel).to(tl.float32))


@triton.jit
def side_parameters(spatial, bias, offset, d, D, SIDES: tl.constexpr, K: tl.constexpr):
    """Load the ``parameters`` of Conv1d_t, of every side, one after another."""
    taps = ()
    for side in tl.static_range(SIDES):
        taps = taps + parameters(spatial + side * D * K, bias, offset, d, K, False)
    return taps


@triton.jit
def channel_parameters(weight, bias, offset, spatial, d, D, SIDES: tl.constexpr, K: tl.constexpr):
    """Load the ``parameters`` of a channel's v, s_1, s_2, and its ``side_parameters`` where it has sides."""
    v, s = parameters(weight, bias, offset, d, K, True), parameters(weight, bias, offset, D + d, K, True)
    t = parameters(weight, bias, offset, 2 * D + d, K, True)
    return v, s, t, side_parameters(spatial, bias, offset, d, D, SIDES, K) if SIDES else v
