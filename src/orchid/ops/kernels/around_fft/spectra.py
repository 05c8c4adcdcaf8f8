"""The frequency side of the fused layer: |.| or cross-correlation, frequency Conv1d, sum with h0_f, product.

Two real rows x, y, of channels d and d + 1 of one sample, are transformed as one complex row Z = T(x + i y):

    X[k] = (Z[k] + conj Z[n - k]) / 2,    Y[k] = (Z[k] - conj Z[n - k]) / 2 i,    Z[n - k] = conj X[k] + i conj Y[k].

The library's complex transform needs no passes before or after it and no copy of its input, unlike its real ones.
Only channels of the same sample share a row: samples never touch each other, not even by rounding. Spectra are
unscaled; ``scale`` is what the conditioning network's transform is scaled by (1 / sqrt(n) for "ortho").

Of MIRRORED rows (``Operands``) the spectrum is a DCT-II times 2 exp(i pi k / n). The phase drops out of |.|, of
conj(key) query and of conj(A) E; the static kernel is turned by it. Bin n / 2 is none of the DCT's. LOW, for "ortho":
coefficient 0 has sqrt(1 / 2) of the others' scale.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.static.waves import cosine, sine
from orchid.ops.kernels.sums import plus, zeros

PI, ROOT_HALF = tl.constexpr(3.141592653589793), tl.constexpr(0.7071067811865476)


@triton.jit
def load_complex(pointer, k, inside):
    """Load complex numbers k, zero where not inside: real and imaginary parts."""
    return tl.split(tl.load(pointer + 2 * k[:, None] + tl.arange(0, 2)[None, :], mask=inside[:, None], other=0.0))


@triton.jit
def _edge(k, n):
    """Return whether bins are their own mirror image: DC, and Nyquist for even n."""
    return (k == 0) | (2 * k == n)


@triton.jit
def _bins(row, k, n):
    """Load twice the bins k of both channels of a complex row, zero outside 0 ... n / 2: real and imaginary parts."""
    inside = (k >= 0) & (2 * k <= n)
    re, im = load_complex(row, k, inside)
    back_re, back_im = load_complex(row, tl.where(k == 0, 0, n - k), inside)
    return re + back_re, im - back_im, im + back_im, back_re - re


@triton.jit
def _low(k, LOW: tl.constexpr):
    """Return what coefficients k of a DCT are scaled by beside the others."""
    return tl.where(k == 0, ROOT_HALF if LOW else 1.0, 1.0)


@triton.jit
def _side_bins(row, k, n, MIRRORED: tl.constexpr, LOW: tl.constexpr):
    """Return the ``_bins`` of a conditioning sequence."""
    x_re, x_im, y_re, y_im = _bins(row, k, n)
    if MIRRORED:
        own = tl.where(2 * k == n, 0.0, _low(k, LOW))
        x_re, x_im, y_re, y_im = x_re * own, x_im * own, y_re * own, y_im * own
    return x_re, x_im, y_re, y_im


@triton.jit
def _phase(k, n):
    """Return exp(i pi k / n), times what DCT coefficients k of the static kernel are of its row's bins."""
    angle, factor = k.to(tl.float32) * (PI / n), tl.where(k == 0, 0.5, ROOT_HALF)
    return factor * cosine(angle), factor * sine(angle)


@triton.jit
def _put_bins(row, k, n, x_re, x_im, y_re, y_im):
    """Store bins k of both channels, and their mirror images; a bin that is its own is real."""
    edge = _edge(k, n)
    x_im, y_im = tl.where(edge, 0.0, x_im), tl.where(edge, 0.0, y_im)
    part, inside = tl.arange(0, 2)[None, :], (2 * k <= n)[:, None]
    tl.store(row + 2 * k[:, None] + part, tl.join(x_re - y_im, x_im + y_re), mask=inside)
    tl.store(row + 2 * (n - k)[:, None] + part, tl.join(x_re + y_im, y_re - x_im), mask=inside & (edge == 0)[:, None])


@triton.jit
def magnitude(re, im):
    """Return |z| without overflow or underflow of the squares."""
    re, im = tl.abs(re), tl.abs(im)
    high, low = tl.maximum(re, im), tl.minimum(re, im)
    ratio = low / tl.maximum(high, 1e-37)
    return high * tl.sqrt(1.0 + ratio * ratio)


@triton.jit
def _crossed(key_re, key_im, query_re, query_im, scale):
    """Return conj(key) query, both scaled first: their product may leave float32 before it is scaled."""
    key_re, key_im, query_re, query_im = key_re * scale, key_im * scale, query_re * scale, query_im * scale
    return key_re * query_re + key_im * query_im, key_re * query_im - key_im * query_re


@triton.jit
def _kernels(
    static, delta, taps, sides, pair, d, D, k, n, scale,
    KEPT: tl.constexpr, MIRRORED: tl.constexpr, LOW: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Return twice h_f = h0_f + hx_f of channels d and d + 1 at bins k; ``sides`` is the first conditioning row.

    ``scale`` is for twice the spectra of the conditioning sequences: half the scale of the transform, for "cross" too.
    """
    e = tl.minimum(d + 1, D - 1)
    x_taps, y_taps = taps + d * K, taps + e * K
    if KEPT:
        bins, inside = n // 2 + 1, 2 * k <= n
        x_re, x_im = load_complex(static + d * 2 * bins, k, inside)
        y_re, y_im = load_complex(static + e * 2 * bins, k, inside)
        x_re, x_im, y_re, y_im = 2 * x_re, 2 * x_im, 2 * y_re, 2 * y_im
    else:
        x_re, x_im, y_re, y_im = _bins(static + pair * 2 * n, k, n)
        if MIRRORED:
            re, im = _phase(k, n)
            x_re, x_im = x_re * re + x_im * im, 0.0 * x_im
            y_re, y_im = y_re * re + y_im * im, 0.0 * y_im
        x_re += 2 * tl.load(delta + d).to(tl.float32)
        y_re += 2 * tl.load(delta + e).to(tl.float32)
    edge = _edge(k, n)
    for j in tl.static_range(K):
        near = k - K // 2 + j
        if SIDES == 1:
            a_re, a_im, b_re, b_im = _side_bins(sides, near, n, MIRRORED, LOW)
            x_re += tl.load(x_taps + j).to(tl.float32) * 2 * scale * magnitude(a_re, a_im)
            y_re += tl.load(y_taps + j).to(tl.float32) * 2 * scale * magnitude(b_re, b_im)
        if SIDES == 2:
            a_re, a_im, b_re, b_im = _side_bins(sides, near, n, MIRRORED, LOW)
            q_re, q_im, r_re, r_im = _side_bins(sides + 2 * n, near, n, MIRRORED, LOW)
            re, im = _crossed(a_re, a_im, q_re, q_im, scale)
            x_re += 2 * tl.load(x_taps + j).to(tl.float32) * re
            x_im += tl.where(edge, 0.0, 2 * tl.load(x_taps + j).to(tl.float32) * im)
            re, im = _crossed(b_re, b_im, r_re, r_im, scale)
            y_re += 2 * tl.load(y_taps + j).to(tl.float32) * re
            y_im += tl.where(edge, 0.0, 2 * tl.load(y_taps + j).to(tl.float32) * im)
    return x_re, x_im, y_re, y_im


@triton.jit
def _put_product(target, row, k, n, x_re, x_im, y_re, y_im, share):
    """Store share times the product of twice two spectra: one in registers, one in a row."""
    a_re, a_im, b_re, b_im = _bins(row, k, n)
    _put_bins(
        target, k, n,
        (x_re * a_re - x_im * a_im) * share, (x_re * a_im + x_im * a_re) * share,
        (y_re * b_re - y_im * b_im) * share, (y_re * b_im + y_im * b_re) * share,
    )  # fmt: skip


@launched
@triton.jit(do_not_specialize=["first", "group"])
def mix_kernel(
    spectra, static, delta, taps, out, first, D, batch, n, scale, share, group,
    KEPT: tl.constexpr, MIRRORED: tl.constexpr, LOW: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write C / n = h_f A / n: spectra (pairs, B, 1 + SIDES, n) of a and the conditioning sequences, out (pairs, B, n).

    static is T h0 (pairs, n), the taps ``delta`` not added, or KEPT as h0_f (D, n / 2 + 1). ``share`` = 1 / 4 n.
    """
    pair, part = tl.program_id(0).to(tl.int64), tl.program_id(2)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = first + 2 * pair
    for i in range(group):
        row = pair * batch + part * group + i
        a = spectra + row * ((1 + SIDES) * 2 * n)
        x_re, x_im, y_re, y_im = _kernels(
            static, delta, taps, a + 2 * n, pair, d, D, k, n, scale, KEPT, MIRRORED, LOW, SIDES, K
        )  # fmt: skip
        _put_product(out + row * 2 * n, a, k, n, x_re, x_im, y_re, y_im, share)


@triton.jit
def _kernel_grads(a, e, k, n, share):
    """Return the gradients of both channels' h_f at bins k: conj(A) E w / n, w = 2 for bins with a mirror image."""
    a_re, a_im, b_re, b_im = _bins(a, k, n)
    e_re, e_im, f_re, f_im = _bins(e, k, n)
    weight = tl.where(_edge(k, n), share, 2 * share)
    return (
        (a_re * e_re + a_im * e_im) * weight,
        (a_re * e_im - a_im * e_re) * weight,
        (b_re * f_re + b_im * f_im) * weight,
        (b_re * f_im - b_im * f_re) * weight,
    )


@triton.jit
def _turned(re, im, dm, factor):
    """Return the gradient of z through |z|, dm z / |z|, times factor; zero at zero."""
    turn = dm * factor / tl.maximum(magnitude(re, im), 1e-37)
    return turn * re, turn * im


@triton.jit
def _put_phase_grads(
    target, a, side, grad, dx, dy, x_taps, y_taps, k, n, scale, share, own,
    MIRRORED: tl.constexpr, LOW: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Store the spectrum of the conditioning sequence's gradient; return what bins k give to both channels' taps.

    dx and dy are the real parts of the gradients of h_f, ``own`` is 1 / w.
    """
    x_sums, y_sums = (), ()
    dm, dn = tl.zeros(k.shape, tl.float32), tl.zeros(k.shape, tl.float32)
    for j in tl.static_range(K):
        near = k - K // 2 + j
        g_re, g_im, h_re, h_im = _side_bins(side, near, n, MIRRORED, LOW)
        x_sums = x_sums + (dx * magnitude(g_re, g_im) * scale,)
        y_sums = y_sums + (dy * magnitude(h_re, h_im) * scale,)
        near_x, _, near_y, _ = _kernel_grads(a, grad, near, n, share)
        dm += tl.load(x_taps + K - 1 - j).to(tl.float32) * near_x
        dn += tl.load(y_taps + K - 1 - j).to(tl.float32) * near_y
    g_re, g_im, h_re, h_im = _side_bins(side, k, n, MIRRORED, LOW)
    factor = 2 * scale * own * _low(k, LOW)
    g_re, g_im = _turned(g_re, g_im, dm, factor)
    h_re, h_im = _turned(h_re, h_im, dn, factor)
    _put_bins(target, k, n, g_re, g_im, h_re, h_im)
    return x_sums + y_sums


@triton.jit
def _put_cross_grads(
    target, a, key, grad, dx_re, dx_im, dy_re, dy_im, x_taps, y_taps, k, n, scale, share, own,
    MIRRORED: tl.constexpr, LOW: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Store the spectra of the gradients of key and query, one after the other; return what bins k give to the taps.

    dx and dy are the gradients of h_f, ``own`` is 1 / w.
    """
    query, edge = key + 2 * n, _edge(k, n)
    dx_im, dy_im = tl.where(edge, 0.0, dx_im), tl.where(edge, 0.0, dy_im)
    x_sums, y_sums = (), ()
    zero = tl.zeros(k.shape, tl.float32)
    u_re, u_im, v_re, v_im = zero, zero, zero, zero
    for j in tl.static_range(K):
        near = k - K // 2 + j
        g_re, g_im, h_re, h_im = _side_bins(key, near, n, MIRRORED, LOW)
        q_re, q_im, r_re, r_im = _side_bins(query, near, n, MIRRORED, LOW)
        re, im = _crossed(g_re, g_im, q_re, q_im, scale)
        x_sums = x_sums + (dx_re * re + dx_im * im,)
        re, im = _crossed(h_re, h_im, r_re, r_im, scale)
        y_sums = y_sums + (dy_re * re + dy_im * im,)
        near_edge = _edge(near, n)
        near_re, near_im, far_re, far_im = _kernel_grads(a, grad, near, n, share)
        u_re += tl.load(x_taps + K - 1 - j).to(tl.float32) * near_re
        u_im += tl.load(x_taps + K - 1 - j).to(tl.float32) * tl.where(near_edge, 0.0, near_im)
        v_re += tl.load(y_taps + K - 1 - j).to(tl.float32) * far_re
        v_im += tl.load(y_taps + K - 1 - j).to(tl.float32) * tl.where(near_edge, 0.0, far_im)
    g_re, g_im, h_re, h_im = _side_bins(key, k, n, MIRRORED, LOW)
    q_re, q_im, r_re, r_im = _side_bins(query, k, n, MIRRORED, LOW)
    # dkey = query conj(dX), dquery = key dX, with scale^2; what is loaded is twice the spectrum, whose scale is
    # halved: a factor 2 in all
    factor = 2 * scale * scale * own * _low(k, LOW)
    _put_bins(
        target, k, n,
        factor * (q_re * u_re + q_im * u_im), factor * (q_im * u_re - q_re * u_im),
        factor * (r_re * v_re + r_im * v_im), factor * (r_im * v_re - r_re * v_im),
    )  # fmt: skip
    _put_bins(
        target + 2 * n, k, n,
        factor * (g_re * u_re - g_im * u_im), factor * (g_re * u_im + g_im * u_re),
        factor * (h_re * v_re - h_im * v_im), factor * (h_re * v_im + h_im * v_re),
    )  # fmt: skip
    return x_sums + y_sums


@launched
@triton.jit(do_not_specialize=["first", "group"])
def mix_grad_kernel(
    spectra, static, delta, taps, out, dstatic, partial, first, D, batch, n, scale, share, group,
    KEPT: tl.constexpr, MIRRORED: tl.constexpr, LOW: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr,
    WITH_C: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the spectra whose unscaled inverse transforms are da, the gradients of the conditioning sequences, and c.

    spectra (pairs, B, 2 + SIDES, n) ends with that of dc; out (pairs, B, 1 + SIDES + WITH_C, n). An inverse transform
    counts a bin with a mirror image twice, the adjoint of a half spectrum once: hence the factors 1 / w. A program sums
    over ``group`` samples: dstatic (groups, pairs, n) and partial (groups, blocks, pairs, 2, K) are their shares.

    MIRRORED, a column of partial follows for the taps ``delta``, which are no lag of a DCT's kernel. There the gradient
    of h_f is half of w conj(A) E / n, and that of the conditioning sequences twice what the inverse transform makes of
    theirs: only sums are halved.
    """
    ROWS: tl.constexpr = 2 + SIDES
    pair, block, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    k = block * BLOCK + tl.arange(0, BLOCK)
    d = first + 2 * pair
    x_taps, y_taps = taps + d * K, taps + tl.minimum(d + 1, D - 1) * K
    own = 1.0 / tl.where(_edge(k, n), 1.0, 2.0)
    zero = tl.zeros((BLOCK,), tl.float32)
    sx_re, sx_im, sy_re, sy_im = zero, zero, zero, zero
    sums = zeros(2 * K if SIDES else 0, BLOCK)
    for i in range(group):
        row = pair * batch + part * group + i
        a = spectra + row * (ROWS * 2 * n)
        sides, grad = a + 2 * n, a + (ROWS - 1) * 2 * n
        target = out + row * ((1 + SIDES + WITH_C) * 2 * n)
        x_re, x_im, y_re, y_im = _kernels(
            static, delta, taps, sides, pair, d, D, k, n, scale, KEPT, MIRRORED, LOW, SIDES, K
        )  # fmt: skip
        dx_re, dx_im, dy_re, dy_im = _kernel_grads(a, grad, k, n, share)
        sx_re += dx_re
        sx_im += dx_im
        sy_re += dy_re
        sy_im += dy_im
        more = ()
        if SIDES == 1:
            more = _put_phase_grads(
                target + 2 * n, a, sides, grad, dx_re, dy_re, x_taps, y_taps, k, n, scale, share, own, MIRRORED, LOW, K
            )
        if SIDES == 2:
            more = _put_cross_grads(
                target + 2 * n, a, sides, grad, dx_re, dx_im, dy_re, dy_im, x_taps, y_taps, k, n, scale, share, own,
                MIRRORED, LOW, K,
            )  # fmt: skip
        sums = plus(sums, more, 2 * K if SIDES else 0)
        if WITH_C:
            _put_product(target + (1 + SIDES) * 2 * n, a, k, n, x_re, x_im, y_re, y_im, share)
        _put_product(target, grad, k, n, x_re, -x_im, y_re, -y_im, share)
    pairs = tl.num_programs(0)
    COLUMNS: tl.constexpr = K + 1 if MIRRORED else K
    shares = partial + ((part * tl.num_programs(1) + block) * pairs + pair) * 2 * COLUMNS
    half = 0.5 if MIRRORED else 1.0
    if MIRRORED:
        tl.store(shares + K, half * tl.sum(sx_re))
        tl.store(shares + COLUMNS + K, half * tl.sum(sy_re))
        re, im = _phase(k, n)
        sx_re, sx_im, sy_re, sy_im = sx_re * re, sx_re * im, sy_re * re, sy_re * im
    _put_bins(dstatic + (part * pairs + pair) * 2 * n, k, n, sx_re * own, sx_im * own, sy_re * own, sy_im * own)
    for j in tl.static_range(2 * K if SIDES else 0):
        tl.store(shares + j // K * COLUMNS + j % K, half * tl.sum(sums[j]))
