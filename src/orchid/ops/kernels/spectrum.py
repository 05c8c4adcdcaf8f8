"""The frequency side of the fused layer: |.| or cross-correlation, frequency Conv1d, sum with h0_f, product.

Half spectra of real rows, F = n / 2 + 1 bins, unscaled; complex numbers are pairs of floats. ``scale`` is what the
conditioning network's transform is scaled by (1 / sqrt(n) for "ortho").
"""

import triton
import triton.language as tl


@triton.jit
def _bin(pointer, k, bins):
    """Load bins k of a row: real and imaginary parts, zero outside the spectrum; a pair is one load."""
    inside = (k >= 0) & (k < bins)
    pairs = tl.load(pointer + 2 * k[:, None] + tl.arange(0, 2)[None, :], mask=inside[:, None], other=0.0)
    return tl.split(pairs)


@triton.jit
def _put(pointer, k, bins, re, im):
    target = pointer + 2 * k[:, None] + tl.arange(0, 2)[None, :]
    tl.store(target, tl.join(re, im), mask=(k < bins)[:, None])


@triton.jit
def _magnitude(re, im):
    """Return |z| without overflow or underflow of the squares."""
    re, im = tl.abs(re), tl.abs(im)
    high, low = tl.maximum(re, im), tl.minimum(re, im)
    ratio = low / tl.where(high > 0, high, 1.0)
    return high * tl.sqrt(1.0 + ratio * ratio)


@triton.jit
def _edge(k, n):
    """Return whether bins are their own mirror image: DC, and Nyquist for even n."""
    return (k == 0) | (2 * k == n)


@triton.jit
def _kernel_bins(spec, h0, taps, k, bins, n, scale, SIDES: tl.constexpr, K: tl.constexpr):
    """Return h_f = h0_f + hx_f at bins k of a row; ``spec`` is the row of the first conditioning spectrum."""
    re, im = _bin(h0, k, bins)
    if SIDES == 1:
        for j in tl.static_range(K):
            g_re, g_im = _bin(spec, k - K // 2 + j, bins)
            re += tl.load(taps + j) * (_magnitude(g_re, g_im) * scale)
    if SIDES == 2:
        x_re, x_im = tl.zeros(k.shape, tl.float32), tl.zeros(k.shape, tl.float32)
        for j in tl.static_range(K):
            k_re, k_im = _bin(spec, k - K // 2 + j, bins)
            q_re, q_im = _bin(spec + 2 * bins, k - K // 2 + j, bins)
            tap = tl.load(taps + j)
            x_re += tap * ((k_re * scale) * (q_re * scale) + (k_im * scale) * (q_im * scale))
            x_im += tap * ((k_re * scale) * (q_im * scale) - (k_im * scale) * (q_re * scale))
        re += x_re
        im += tl.where(_edge(k, n), 0.0, x_im)
    return re, im


@triton.jit
def mix_kernel(
    spec, h0, taps, out, D, bins, n, scale, SIDES: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write C = h_f A: spec (B, D, 1 + SIDES, F) holds A and the conditioning spectra, out is (B, D, F)."""
    row = tl.program_id(0).to(tl.int64)
    d = row % D
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    spec += row * (1 + SIDES) * 2 * bins
    re, im = _kernel_bins(spec + 2 * bins, h0 + d * 2 * bins, taps + d * K, k, bins, n, scale, SIDES, K)
    a_re, a_im = _bin(spec, k, bins)
    _put(out + row * 2 * bins, k, bins, re * a_re - im * a_im, re * a_im + im * a_re)


@triton.jit
def _kernel_grad(spec, e, k, bins, n):
    """Return the gradient of h_f at bins k: conj(A) E w / n, w = 2 for bins that have a mirror image, else 1."""
    a_re, a_im = _bin(spec, k, bins)
    e_re, e_im = _bin(e, k, bins)
    weight = tl.where(_edge(k, n), 1.0, 2.0) / n
    return (a_re * e_re + a_im * e_im) * weight, (a_re * e_im - a_im * e_re) * weight


@triton.jit
def mix_grad_kernel(
    spec, e, h0, taps, out, dh0, partial, D, bins, n, scale, blocks,
    GROUP: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the spectra whose inverse transforms are the gradients of a and of the conditioning sequences.

    e is the half spectrum (B, D, F) of the gradient dc of the convolution's output. out (B, D, 1 + SIDES, F):
    conj(h_f) E, then dG n / w: an inverse real transform counts a bin with a mirror image twice, its adjoint does not.
    A program sums over GROUP samples: dh0 (groups, D, F) and partial (groups, blocks, D, K) are their shares.
    """
    d, block, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    k = block * BLOCK + tl.arange(0, BLOCK)
    h0 += d * 2 * bins
    taps += d * K
    sum_re, sum_im = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    slot = tl.arange(0, SLOTS)
    tap_sums = tl.zeros((SLOTS,), tl.float32)
    for i in range(GROUP):
        b = part * GROUP + i
        row = b * D + d
        a = spec + row * (1 + SIDES) * 2 * bins
        g = a + 2 * bins
        grad = e + row * 2 * bins
        target = out + row * (1 + SIDES) * 2 * bins
        re, im = _kernel_bins(g, h0, taps, k, bins, n, scale, SIDES, K)
        e_re, e_im = _bin(grad, k, bins)
        _put(target, k, bins, re * e_re + im * e_im, re * e_im - im * e_re)
        own_re, own_im = _kernel_grad(a, grad, k, bins, n)
        sum_re += own_re
        sum_im += own_im
        back = n / tl.where(_edge(k, n), 1.0, 2.0)
        if SIDES == 1:
            dm = tl.zeros((BLOCK,), tl.float32)
            for j in tl.static_range(K):
                near = k + K // 2 - j
                near_re, _ = _kernel_grad(a, grad, near, bins, n)
                dm += tl.load(taps + j) * near_re
                g_re, g_im = _bin(g, k - K // 2 + j, bins)
                tap_sums += tl.where(slot == j, tl.sum(own_re * _magnitude(g_re, g_im) * scale), 0.0)
            g_re, g_im = _bin(g, k, bins)
            size = _magnitude(g_re, g_im)
            turn = dm * (scale * back) / tl.where(size > 0, size, 1.0)
            _put(target + 2 * bins, k, bins, turn * g_re, turn * g_im)
        if SIDES == 2:
            own_im = tl.where(_edge(k, n), 0.0, own_im)
            dx_re, dx_im = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
            for j in tl.static_range(K):
                near = k + K // 2 - j
                near_re, near_im = _kernel_grad(a, grad, near, bins, n)
                dx_re += tl.load(taps + j) * near_re
                dx_im += tl.load(taps + j) * tl.where(_edge(near, n), 0.0, near_im)
                k_re, k_im = _bin(g, k - K // 2 + j, bins)
                q_re, q_im = _bin(g + 2 * bins, k - K // 2 + j, bins)
                x_re = (k_re * scale) * (q_re * scale) + (k_im * scale) * (q_im * scale)
                x_im = (k_re * scale) * (q_im * scale) - (k_im * scale) * (q_re * scale)
                tap_sums += tl.where(slot == j, tl.sum(own_re * x_re + own_im * x_im), 0.0)
            k_re, k_im = _bin(g, k, bins)
            q_re, q_im = _bin(g + 2 * bins, k, bins)
            factor = scale * scale * back
            _put(
                target + 2 * bins,
                k,
                bins,
                factor * (q_re * dx_re + q_im * dx_im),
                factor * (q_im * dx_re - q_re * dx_im),
            )
            _put(
                target + 4 * bins,
                k,
                bins,
                factor * (k_re * dx_re - k_im * dx_im),
                factor * (k_re * dx_im + k_im * dx_re),
            )
    _put(dh0 + (part * D + d) * 2 * bins, k, bins, sum_re, sum_im)
    tl.store(partial + ((part * blocks + block) * D + d) * K + slot, tap_sums, mask=slot < K)
