"""Images in frequency: |.| or cross-correlation, frequency Conv2d, sum with h0_f, product, and their gradients.

Half spectra (H, F), F = W / 2 + 1, of the orthonormal transform. Rows of bins lie on a circle; columns end at zero and
Nyquist, beyond which is zero. These two columns are their own mirror images: there a kernel's spectrum is replaced by
its Hermitian part, (z[k] + conj z[-k]) / 2, or it would be that of no real kernel.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.around_fft.spectra import load_complex, magnitude
from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.streams.parameters import wrapped
from orchid.ops.kernels.sums import plus, zeros


@triton.jit
def _put_complex(pointer, k, re, im, inside):
    tl.store(pointer + 2 * k[:, None] + tl.arange(0, 2)[None, :], tl.join(re, im), mask=inside[:, None])


@triton.jit
def _met(row, field, k, inside, SIDES: tl.constexpr):
    """Return what the frequency Conv2d meets at bins k: |G|, or conj(K) Q; ``field`` is from one side to the next."""
    re, im = load_complex(row + field, k, inside)
    if SIDES == 1:
        return magnitude(re, im), tl.zeros(re.shape, tl.float32)
    else:
        q_re, q_im = load_complex(row + 2 * field, k, inside)
        return re * q_re + im * q_im, re * q_im - im * q_re


@triton.jit
def _neighbour(k1, k2, i, j, height, columns, K: tl.constexpr, SIGN: tl.constexpr):
    """Return bins (k1 + SIGN (i - K // 2), k2 + SIGN (j - K // 2)) by number, and which exist."""
    row, column = k1 + SIGN * (i - K // 2), k2 + SIGN * (j - K // 2)
    return wrapped(row, height, True) * columns + column, (column >= 0) & (column < columns)


@triton.jit
def _window(row, field, k1, k2, height, columns, inside, SIDES: tl.constexpr, K: tl.constexpr):
    """Return what K x K taps meet around bins: real parts, then imaginary parts."""
    res, ims = (), ()
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            k, there = _neighbour(k1, k2, i, j, height, columns, K, 1)
            re, im = _met(row, field, k, inside & there, SIDES)
            res, ims = res + (re,), ims + (im,)
    return res, ims


@triton.jit
def _weighted(x, taps, K: tl.constexpr):
    total = taps[0] * x[0]
    for j in tl.static_range(1, K * K):
        total += taps[j] * x[j]
    return total


@triton.jit
def _spectral_taps(spectral, d, SIDES: tl.constexpr, K: tl.constexpr):
    taps = ()
    if SIDES:
        for j in tl.static_range(K * K):
            taps = taps + (tl.load(spectral + d * (K * K) + j).to(tl.float32),)
    return taps


@triton.jit
def _kernel_bins(
    row, field, static, taps, k1, k2, height, columns, width, inside, SIDES: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """Return h_f at bins, real and imaginary parts, and the windows that the taps have met."""
    h, h_im = load_complex(static, k1 * columns + k2, inside)
    res, ims = (), ()
    if SIDES:
        res, ims = _window(row, field, k1, k2, height, columns, inside, SIDES, K)
        re, im = _weighted(res, taps, K), _weighted(ims, taps, K)
        edge = (2 * k2) % width == 0
        mirror = tl.where(k1 == 0, 0, height - k1)
        m_res, m_ims = _window(row, field, mirror, k2, height, columns, inside & edge, SIDES, K)
        h += tl.where(edge, 0.5 * (re + _weighted(m_res, taps, K)), re)
        h_im += tl.where(edge, 0.5 * (im - _weighted(m_ims, taps, K)), im)
    return h, h_im, res, ims


@launched
@triton.jit(do_not_specialize=["first", "batch"])
def image_mix_kernel(
    spectra, static, spectral, first, batch, height, columns, width,
    SIDES: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write C = h_f A over A; spectra (1 + SIDES, channels, B, H, F, 2), static (D, H, F, 2)."""
    own = tl.program_id(1).to(tl.int64)
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = height * columns
    inside, b, k = item < batch * bins, (item // bins).to(tl.int64), item % bins
    field = 2 * tl.num_programs(1) * batch.to(tl.int64) * bins
    row, d = spectra + 2 * (own * batch + b) * bins, first + own
    taps = _spectral_taps(spectral, d, SIDES, K)
    h, h_im, _, _ = _kernel_bins(
        row[:, None], field, static + 2 * d * bins, taps, k // columns, k % columns, height, columns, width, inside,
        SIDES, K,
    )  # fmt: skip
    re, im = load_complex(row[:, None], k, inside)
    _put_complex(row[:, None], k, h * re - h_im * im, h * im + h_im * re, inside)


@triton.jit
def _kernel_grads(a, e, k, k2, width, inside):
    """Return the gradient of h_f, w conj(A) E, at bins k; w is 2 for bins that stand for two."""
    a_re, a_im = load_complex(a, k, inside)
    e_re, e_im = load_complex(e, k, inside)
    w = tl.where((2 * k2) % width == 0, 1.0, 2.0)
    return w * (a_re * e_re + a_im * e_im), w * (a_re * e_im - a_im * e_re)


@launched
@triton.jit(do_not_specialize=["first", "batch", "group"])
def image_mix_grad_kernel(
    spectra, static, spectral, out, dstatic, partial, first, batch, height, columns, width, group,
    SIDES: tl.constexpr, K: tl.constexpr, SAMPLES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the spectra of da, of the conditioning images' gradients and of c, (2 + SIDES, channels, B, H, F, 2).

    spectra (2 + SIDES, ...): those of a, the conditioning images, dc. What a program's ``group`` samples give to the
    gradients of h0_f and of the taps: dstatic (groups, SAMPLES, channels, H, F, 2), partial (groups, blocks, channels,
    K²). A block has bins of one sample, or all bins of SAMPLES samples, one after the other.
    """
    block, own, part = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    channels, bins, last = tl.num_programs(1), height * columns, tl.minimum(batch, (part + 1) * group)
    k = block * BLOCK + tl.arange(0, BLOCK)
    sample, fits = k // bins, k < SAMPLES * bins
    k = k % bins
    k1, k2 = k // columns, k % columns
    field = 2 * channels * batch.to(tl.int64) * bins
    d, w = first + own, tl.where((2 * k2) % width == 0, 1.0, 2.0)
    taps = _spectral_taps(spectral, d, SIDES, K)
    dh0, dh0_im, sums = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), zeros(K * K, BLOCK)
    for b in range(part * group, last, SAMPLES):
        inside = fits & (b + sample < last)
        place = 2 * (own * batch + b) * bins
        row, target = spectra + place, out + place
        if SAMPLES > 1:
            row, target = row + (2 * bins * sample)[:, None], target + (2 * bins * sample)[:, None]
        e = row + (1 + SIDES) * field
        h, h_im, res, ims = _kernel_bins(
            row, field, static + 2 * d * bins, taps, k1, k2, height, columns, width, inside, SIDES, K
        )  # fmt: skip
        a_re, a_im = load_complex(row, k, inside)
        e_re, e_im = load_complex(e, k, inside)
        _put_complex(target, k, h * e_re + h_im * e_im, h * e_im - h_im * e_re, inside)
        _put_complex(target + (1 + SIDES) * field, k, h * a_re - h_im * a_im, h * a_im + h_im * a_re, inside)
        dh, dh_im = _kernel_grads(row, e, k, k2, width, inside)
        dh0, dh0_im = dh0 + dh, dh0_im + dh_im
        if SIDES:
            more = ()
            dx, dx_im = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
            for i in tl.static_range(K):
                for j in tl.static_range(K):
                    more = more + (dh * res[i * K + j] + dh_im * ims[i * K + j],)
                    there, exists = _neighbour(k1, k2, i, j, height, columns, K, -1)
                    re, im = _kernel_grads(row, e, there, k2 - (j - K // 2), width, inside & exists)
                    dx, dx_im = dx + taps[i * K + j] * re, dx_im + taps[i * K + j] * im
            sums = plus(sums, more, K * K)
            dx, dx_im = dx / w, dx_im / w  # the inverse transform counts such bins twice
            re, im = load_complex(row + field, k, inside)
            if SIDES == 1:
                size = magnitude(re, im)
                turn = tl.where(size > 0, dx / tl.where(size > 0, size, 1.0), 0.0)
                _put_complex(target + field, k, turn * re, turn * im, inside)
            else:
                q_re, q_im = load_complex(row + 2 * field, k, inside)
                _put_complex(target + field, k, q_re * dx + q_im * dx_im, q_im * dx - q_re * dx_im, inside)
                _put_complex(target + 2 * field, k, re * dx - im * dx_im, re * dx_im + im * dx, inside)
    place = ((part * SAMPLES + sample) * channels + own) * bins if SAMPLES > 1 else (part * channels + own) * bins
    _put_complex(dstatic, place + k, dh0, dh0_im, fits)
    if SIDES:
        place = partial + ((part * tl.num_programs(0) + block) * channels + own) * (K * K)
        for j in tl.static_range(K * K):
            tl.store(place + j, tl.sum(sums[j]))
