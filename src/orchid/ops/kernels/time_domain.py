"""The time side of the fused layer: short convolutions and gates, before and after the transforms.

Rows are pairs of batch and channel, r = b D + d. A program handles one row and a block of positions; whatever a
convolution needs from its neighbours is read again (it is in cache). Everything is computed in float32.

Positions: K taps meet t - (K - 1) + j + SHIFT, j = 0 ... K - 1, wrapped at ``period`` when CIRCULAR; what is outside
the sequence or masked counts as zero.
"""

import triton
import triton.language as tl


@triton.jit
def _load(pointer, at, stride, length, pad, period, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr):
    """Load positions ``at`` of a row in float32; zero outside the sequence and where ``pad`` is true."""
    if CIRCULAR:
        at = tl.where(at < 0, at + period, at)
        at = tl.where(at >= period, at - period, at)
    inside = (at >= 0) & (at < length)
    if HAS_PAD:
        inside = inside & (tl.load(pad + at, mask=inside, other=1) == 0)
    return tl.load(pointer + at * stride, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _conv(
    pointer, taps, t, stride, length, pad, period,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr,
):  # fmt: skip
    """Return sum_j taps[j] x[t - (K - 1) + j + SHIFT]."""
    total = tl.zeros(t.shape, tl.float32)
    for j in tl.static_range(K):
        x = _load(pointer, t - (K - 1) + j + SHIFT, stride, length, pad, period, CIRCULAR, HAS_PAD)
        total += tl.load(taps + j) * x
    return total


@triton.jit
def _real(t, length, pad, HAS_PAD: tl.constexpr):
    """Return whether positions hold real tokens."""
    real = (t >= 0) & (t < length)
    if HAS_PAD:
        real = real & (tl.load(pad + t, mask=real, other=1) == 0)
    return real


@triton.jit
def _wrap(t, period, CIRCULAR: tl.constexpr):
    if CIRCULAR:
        t = tl.where(t < 0, t + period, t)
        t = tl.where(t >= period, t - period, t)
    return t


@triton.jit
def _pairs(pointer, m, count, period, CIRCULAR: tl.constexpr):
    """Load bfloat16 positions 2 m and 2 m + 1 of a contiguous row, and the two before them, as two 32-bit words.

    A load shifted by one position is two bytes at a time; a shift by two keeps its words whole.
    """
    words = pointer.to(tl.pointer_type(tl.int32))
    now = tl.load(words + m, mask=m < count, other=0)
    at = _wrap(m - 1, period // 2, CIRCULAR)
    before = tl.load(words + at, mask=(at >= 0) & (at < count), other=0)
    return (
        (now << 16).to(tl.float32, bitcast=True),
        (now & -65536).to(tl.float32, bitcast=True),
        (before << 16).to(tl.float32, bitcast=True),
        (before & -65536).to(tl.float32, bitcast=True),
    )


@triton.jit
def _pair_conv(x0, x1, b0, b1, taps):
    """Return the causal convolution of three taps at the even and the odd positions of ``_pairs``."""
    w0, w1, w2 = tl.load(taps), tl.load(taps + 1), tl.load(taps + 2)
    return w2 * x0 + w1 * b1 + w0 * b0, w2 * x1 + w1 * x0 + w0 * b1


@triton.jit
def _joined(even, odd, N1: tl.constexpr, N2: tl.constexpr):
    """Return even and odd positions (N1, N2 / 2) as one tile (N1, N2)."""
    return tl.reshape(tl.join(even, odd), (N1, N2))


@triton.jit
def gate_in_kernel(
    p, u, weight, bias, spatial, pad, u_pad, out,
    D, length, u_length, period, n,
    p_batch, p_channel, p_time, u_batch, u_channel, u_time,
    SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    HAS_PAD: tl.constexpr, HAS_U_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a = s_1 * v and SIDES conditioning sequences Conv1d_t(u), zero padded to n: out (B, D, 1 + SIDES, n)."""
    row = tl.program_id(0).to(tl.int64)
    b, d = row // D, row % D
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channel = p + b * p_batch + d * p_channel
    pads = pad + b * length
    v = _conv(channel, weight + d * K, t, p_time, length, pads, period, K, SHIFT, CIRCULAR, HAS_PAD)
    v += tl.load(bias + d)
    gate = channel + D * p_channel
    s = _conv(gate, weight + (D + d) * K, t, p_time, length, pads, period, K, SHIFT, CIRCULAR, HAS_PAD)
    s += tl.load(bias + D + d)
    a = tl.where(_real(t, length, pads, HAS_PAD), v * s, 0.0)
    target = out + row * (1 + SIDES) * n + t
    tl.store(target, a, mask=t < n)
    source, u_pads = u + b * u_batch + d * u_channel, u_pad + b * u_length
    for side in tl.static_range(SIDES):
        taps = spatial + (side * D + d) * K
        g = _conv(source, taps, t, u_time, u_length, u_pads, period, K, SHIFT, CIRCULAR, HAS_U_PAD)
        g = tl.where(_real(t, u_length, u_pads, HAS_U_PAD), g, 0.0)
        tl.store(target + (side + 1) * n, g, mask=t < n)


@triton.jit
def gate_out_kernel(
    p, weight, bias, c, pad, y, kept,
    D, length, period, n, p_batch, p_channel, p_time,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * c (B, D, L), and with KEEP also c in the dtype of y, for the backward pass."""
    row = tl.program_id(0).to(tl.int64)
    b, d = row // D, row % D
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    pads = pad + b * length
    gate = p + b * p_batch + (2 * D + d) * p_channel
    s = _conv(gate, weight + (2 * D + d) * K, t, p_time, length, pads, period, K, SHIFT, CIRCULAR, HAS_PAD)
    s += tl.load(bias + 2 * D + d)
    s = tl.where(_real(t, length, pads, HAS_PAD), s, 0.0)
    inside = t < length
    value = tl.load(c + row * n + t, mask=inside, other=0.0)
    tl.store(y + row * length + t, (s * value).to(y.dtype.element_ty), mask=inside)
    if KEEP:
        tl.store(kept + row * length + t, value.to(kept.dtype.element_ty), mask=inside)


@triton.jit
def gate_out_grad_kernel(
    p, weight, bias, dy, pad, out,
    D, length, period, n, p_batch, p_channel, p_time,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write dc = s_2 * dy, zero padded to n: out (B, D, n)."""
    row = tl.program_id(0).to(tl.int64)
    b, d = row // D, row % D
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    pads = pad + b * length
    gate = p + b * p_batch + (2 * D + d) * p_channel
    s = _conv(gate, weight + (2 * D + d) * K, t, p_time, length, pads, period, K, SHIFT, CIRCULAR, HAS_PAD)
    s += tl.load(bias + 2 * D + d)
    inside = t < length
    g = tl.load(dy + row * length + t, mask=inside, other=0.0).to(tl.float32)
    real = _real(t, length, pads, HAS_PAD)
    tl.store(out + row * n + t, tl.where(real, s * g, 0.0), mask=t < n)


@triton.jit
def _gate_grad(
    role: tl.constexpr, d, t, p_row, p_channel, p_time, weight, bias, dy_row, c_row, da_row, D, length, pads, period,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr,
):  # fmt: skip
    """Return the gradient of short-convolved v (role 0), s_1 (1) or s_2 (2) at positions t."""
    real = _real(t, length, pads, HAS_PAD)
    if role == 2:
        g = tl.load(dy_row + t, mask=real, other=0.0).to(tl.float32)
        g = g * tl.load(c_row + t, mask=real, other=0.0).to(tl.float32)
    else:
        other = (1 - role) * D + d
        g = _conv(
            p_row + other * p_channel, weight + other * K, t, p_time, length, pads, period, K, SHIFT, CIRCULAR, HAS_PAD
        )
        g = (g + tl.load(bias + other)) * tl.load(da_row + t, mask=real, other=0.0)
    return tl.where(real, g, 0.0)


@triton.jit
def streams_grad_kernel(
    p, weight, bias, dy, c, grads, pad, dp, partial,
    D, length, period, n, sides, c_length, p_batch, p_channel, p_time, blocks,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, HAS_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the projected streams, dp (B, 3 D, L), and this block's share of their taps' and biases'.

    grads (B, D, 1 + sides, n) holds da in its first rows; c (B, D, c_length >= L); partial (B D, blocks, 3, K + 1).
    """
    row = tl.program_id(0).to(tl.int64)
    b, d = row // D, row % D
    block = tl.program_id(1)
    t = block * BLOCK + tl.arange(0, BLOCK)
    pads = pad + b * length
    p_row = p + b * p_batch
    dy_row, c_row, da_row = dy + row * length, c + row * c_length, grads + row * (1 + sides) * n
    real = _real(t, length, pads, HAS_PAD)
    for role in tl.static_range(3):
        taps = weight + (role * D + d) * K
        total = tl.zeros((BLOCK,), tl.float32)
        for j in tl.static_range(K):
            at = _wrap(t + (K - 1) - j - SHIFT, period, CIRCULAR)
            g = _gate_grad(
                role, d, at, p_row, p_channel, p_time, weight, bias, dy_row, c_row, da_row, D, length, pads, period,
                K, SHIFT, CIRCULAR, HAS_PAD,
            )  # fmt: skip
            total += tl.load(taps + j) * g
        target = dp + (b * 3 * D + role * D + d) * length + t
        tl.store(target, tl.where(real, total, 0.0).to(dp.dtype.element_ty), mask=t < length)
        g = _gate_grad(
            role, d, t, p_row, p_channel, p_time, weight, bias, dy_row, c_row, da_row, D, length, pads, period,
            K, SHIFT, CIRCULAR, HAS_PAD,
        )  # fmt: skip
        share = partial + ((row * blocks + block) * 3 + role) * (K + 1)
        source = p_row + (role * D + d) * p_channel
        for j in tl.static_range(K):
            x = _load(source, t - (K - 1) + j + SHIFT, p_time, length, pads, period, CIRCULAR, HAS_PAD)
            tl.store(share + j, tl.sum(g * x))
        tl.store(share + K, tl.sum(g))


@triton.jit
def condition_grad_kernel(
    u, spatial, grads, u_pad, du, partial,
    D, u_length, period, n, u_batch, u_channel, u_time, du_batch, blocks,
    ADD: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    HAS_PAD: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write (or ADD to du) the gradient of the conditioning sequence, and this block's share of its taps'.

    grads (B, D, 1 + SIDES, n) holds the gradients of the conditioning sequences after its first rows;
    partial (B D, blocks, SIDES, K).
    """
    row = tl.program_id(0).to(tl.int64)
    b, d = row // D, row % D
    block = tl.program_id(1)
    t = block * BLOCK + tl.arange(0, BLOCK)
    pads = u_pad + b * u_length
    real = _real(t, u_length, pads, HAS_PAD)
    target = du + b * du_batch + d * u_length + t
    total = tl.zeros((BLOCK,), tl.float32)
    if ADD:
        total += tl.load(target, mask=real, other=0.0).to(tl.float32)
    source = u + b * u_batch + d * u_channel
    for side in tl.static_range(SIDES):
        g_row = grads + (row * (1 + SIDES) + side + 1) * n
        taps = spatial + (side * D + d) * K
        for j in tl.static_range(K):
            at = _wrap(t + (K - 1) - j - SHIFT, period, CIRCULAR)
            total += tl.load(taps + j) * tl.load(g_row + at, mask=_real(at, u_length, pads, HAS_PAD), other=0.0)
        g = tl.load(g_row + t, mask=real, other=0.0)
        share = partial + ((row * blocks + block) * SIDES + side) * K
        for j in tl.static_range(K):
            x = _load(source, t - (K - 1) + j + SHIFT, u_time, u_length, pads, period, CIRCULAR, HAS_PAD)
            tl.store(share + j, tl.sum(g * x))
    tl.store(target, tl.where(real, total, 0.0).to(du.dtype.element_ty), mask=t < u_length)
