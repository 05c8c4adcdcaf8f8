"""Short rows (n = 64, 128, 256): everything between the projections in one kernel, the DFT on tensor cores.

A program takes one channel and goes through tiles of ROWS samples. Taps are scalars then, the static kernel is one
vector, and the transforms are matrix products of a tile (ROWS, n) with tables (n, H), H = n / 2:

    X_re = x C,  C[t, k] = cos(2 pi t k / n);      X_im = x S,  S[t, k] = -sin(2 pi t k / n),  S[t, 0] = (-1)^t.

The sine of bin 0 would be zero: its place has the Nyquist bin, so n / 2 + 1 bins fit in two times n / 2 numbers. With
w = 1 for column 0 and 2 for the others, T^-1 X = ((w X_re) C^T + (w X_im) S^T) / n.

Columns come in blocks, so that what stands between two products fits into registers. The frequency Conv1d is a product
with a band matrix; what the Nyquist bin gives and takes is added beside it.

Operands are float16 in the products, sums float32. Every operand is bounded before it is rounded: signals are divided
by the largest value of their row, spectra of kernels by a bound on theirs, so nothing overflows and little is lost.

In time a thread holds octets of positions, 8 m ... 8 m + 7, each loaded as one vector; what a convolution needs from
the neighbouring octets is loaded with them, as vectors again.
"""

import triton
import triton.language as tl

from orchid.ops.kernels.octets import convolved, eight, whole
from orchid.ops.kernels.time_domain import _wrapped, parameters

TINY = tl.constexpr(1e-30)


@triton.jit
def _octets(x, ROWS: tl.constexpr, M: tl.constexpr):
    """Return the eight positions of every octet of (ROWS, 8 M), (ROWS, M) each."""
    return eight(tl.reshape(x, (ROWS, M, 2, 2, 2)))


@triton.jit
def _real(t, here, length, pads, FULL: tl.constexpr, HAS_PAD: tl.constexpr):
    """Return whether positions (1, N) of samples (ROWS, 1) hold real tokens."""
    real = here & (t >= 0)
    if not FULL:
        real = real & (t < length)
    if HAS_PAD:
        real = real & (tl.load(pads + t, mask=real, other=1) == 0)
    return real


@triton.jit
def _tile(row, t, offset, real, FULL: tl.constexpr):
    """Load positions t of a stream and add its offset; where FULL, rows beyond the last sample are left as they are."""
    x = tl.load(row + t, mask=real, other=0.0).to(tl.float32) + offset
    if not FULL:
        x = tl.where(real, x, 0.0)
    return x


@triton.jit
def _stream(
    row, offset, t, here, real, length, pads, period,
    ROWS: tl.constexpr, M: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr,
):  # fmt: skip
    """Return positions 8 m - (K - 1) + SHIFT ... 8 m + 7 + SHIFT of a stream as vectors (ROWS, M).

    The neighbours of an octet come with theirs, in one load each.
    """
    x = _octets(_tile(row, t, offset, real, FULL), ROWS, M)
    if SHIFT < K - 1:
        before = _wrapped(t - 8, period, CIRCULAR)
        inside = _real(before, here, length, pads, FULL, HAS_PAD)
        x = _octets(_tile(row, before, offset, inside, False), ROWS, M)[9 - K + SHIFT :] + x
    if SHIFT > 0:
        after = _wrapped(t + 8, period, CIRCULAR)
        inside = _real(after, here, length, pads, False, HAS_PAD)
        x = x + _octets(_tile(row, after, offset, inside, False), ROWS, M)[:SHIFT]
    return x


@triton.jit
def _convolved(x, own, ROWS: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    """Return the short convolution of a ``_stream``, bias added, (ROWS, 8 M)."""
    return tl.reshape(whole(convolved(x, own, 8, K)), (ROWS, 8 * M))


@triton.jit
def _operand(x, real, FULL: tl.constexpr):
    """Return rows as float16, divided by their largest value, and that value (ROWS,); zero where no token is real."""
    if not FULL:
        x = tl.where(real, x, 0.0)
    most = tl.maximum(tl.max(tl.abs(x), axis=1), TINY)
    return (x * (1.0 / most)[:, None]).to(tl.float16), most


@triton.jit
def _columns(block, BLOCK: tl.constexpr):
    """Return the columns of a block, (1, BLOCK)."""
    return block * BLOCK + tl.arange(0, BLOCK)[None, :]


@triton.jit
def _tables(tables, N: tl.constexpr, BLOCK: tl.constexpr):
    """Load the cosines of all blocks of columns, then the sines, (N, BLOCK) each."""
    H: tl.constexpr = N // 2
    loaded = ()
    for i in tl.static_range(N // BLOCK):
        start = tables + (i // (H // BLOCK)) * N * H + (i % (H // BLOCK)) * BLOCK
        loaded = loaded + (tl.load(start + tl.arange(0, N)[:, None] * H + tl.arange(0, BLOCK)[None, :]),)
    return loaded


@triton.jit
def _bands(taps, total, H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr):
    """Return the matrix (H, H) of the frequency Conv1d, out[k] = sum M[at] band[at, k], its taps divided by ``total``.

    In blocks, row by row.
    """
    bands = ()
    for i in tl.static_range((H // BLOCK) * (H // BLOCK)):
        at, k = tl.trans(_columns(i // (H // BLOCK), BLOCK)), _columns(i % (H // BLOCK), BLOCK)
        band = tl.zeros((BLOCK, BLOCK), tl.float32)
        for j in tl.static_range(K):
            band = tl.where(at - k + K // 2 == j, tl.load(taps + j).to(tl.float32) / total, band)
        bands = bands + (band.to(tl.float16),)
    return bands


@triton.jit
def _shifts(J: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr):
    """Return, in blocks likewise, the matrix that moves what tap J of the Conv1d meets to where it is wanted."""
    shifts = ()
    for i in tl.static_range((H // BLOCK) * (H // BLOCK)):
        at, k = tl.trans(_columns(i // (H // BLOCK), BLOCK)), _columns(i % (H // BLOCK), BLOCK)
        shifts = shifts + ((at - k + K // 2 == J).to(tl.float16),)
    return shifts


@triton.jit
def _through(x, matrix, block, BLOCKS: tl.constexpr):
    """Return a block of columns of x (blocks of columns) times a matrix (blocks, row by row)."""
    out = tl.dot(x[0], matrix[block])
    for i in tl.static_range(1, BLOCKS):
        out = tl.dot(x[i], matrix[i * BLOCKS + block], out)
    return out


@triton.jit
def _back_through(x, matrix, block, BLOCKS: tl.constexpr):
    """Return a block of columns of x times the transposed matrix."""
    out = tl.dot(x[0], tl.trans(matrix[block * BLOCKS]))
    for i in tl.static_range(1, BLOCKS):
        out = tl.dot(x[i], tl.trans(matrix[block * BLOCKS + i]), out)
    return out


@triton.jit
def _static(static, delta, d, own, k, n, KEPT: tl.constexpr):
    """Return h0_f of channel d as columns k: real parts, imaginary parts with zero at column 0, the Nyquist bin's.

    ``static`` has all channels, KEPT as h0_f (D, n / 2 + 1), or T h0 of two channels a row, ``own`` counted there.
    """
    if KEPT:
        row = static + d * (n + 2)
        re, im = tl.load(row + 2 * k), tl.load(row + 2 * k + 1)
        edge = tl.load(row + n)
    else:  # two channels a row: X[k] = (Z[k] + conj Z[n - k]) / 2, Y[k] = (Z[k] - conj Z[n - k]) / 2 i
        row = static + (own // 2) * 2 * n
        back = tl.where(k == 0, 0, n - k)
        z_re, z_im = tl.load(row + 2 * k), tl.load(row + 2 * k + 1)
        b_re, b_im = tl.load(row + 2 * back), tl.load(row + 2 * back + 1)
        odd = d % 2 == 1
        own = tl.load(delta + d).to(tl.float32)
        re = tl.where(odd, z_im + b_im, z_re + b_re) * 0.5 + own
        im = tl.where(odd, b_re - z_re, z_im - b_im) * 0.5
        edge = tl.load(row + n + tl.where(odd, 1, 0)) + own
    return re, tl.where(k == 0, 0.0, im), edge


@triton.jit
def _statics(
    static, delta, d, own, N: tl.constexpr, BLOCK: tl.constexpr, KEPT: tl.constexpr
):  # fmt: skip
    """Return h0_f in blocks, real parts, then imaginary parts; then the Nyquist bin's, and a bound on all of them."""
    res, ims, most, edge = (), (), TINY + 0.0, 0.0
    for i in tl.static_range(N // 2 // BLOCK):
        re, im, edge = _static(static, delta, d, own, _columns(i, BLOCK), N, KEPT)
        res, ims = res + (re,), ims + (im,)
        most = tl.maximum(most, tl.max(tl.max(tl.abs(re) + tl.abs(im), axis=1), axis=0))
    return res + ims + (edge, tl.maximum(most, tl.abs(edge)))


@triton.jit
def _kernel(
    g, most, statics, tables, bands, taps, total, scale, H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """Return h_f of rows, g divided by ``most``: what its columns are made of, so that they can be had block by block.

    (|G| in blocks, float16), |G| of the Nyquist bin (ROWS,), a bound on h_f (ROWS,), h_f of the Nyquist bin over it.
    """
    BLOCKS: tl.constexpr = H // BLOCK
    sizes = ()
    largest, at_edge, edge = 0.0, 0.0, 0.0
    for i in tl.static_range(BLOCKS):
        re, im = tl.dot(g, tables[i]), tl.dot(g, tables[BLOCKS + i])
        if i == 0:
            first = _columns(0, BLOCK) == 0
            edge = tl.sum(tl.where(first, tl.abs(im), 0.0), axis=1)
            im = tl.where(first, 0.0, im)
        magnitude = tl.sqrt(re * re + im * im)
        give = _to_edge(taps, total, _columns(i, BLOCK), H, K)
        largest = tl.maximum(largest, tl.max(magnitude, axis=1))
        at_edge += tl.sum(magnitude * give, axis=1)
        sizes = sizes + (magnitude.to(tl.float16),)
    factor = most * (total * scale)
    bound = statics[2 * BLOCKS + 1] + factor * tl.maximum(largest, edge)
    at_edge += tl.load(taps + K // 2).to(tl.float32) / total * edge
    return sizes, edge, bound, (statics[2 * BLOCKS] + factor * at_edge) / bound


@triton.jit
def _kernel_columns(
    sizes, edge, bound, most, statics, bands, taps, total, scale, block,
    H: tl.constexpr, BLOCK: tl.constexpr, K: tl.constexpr, SIDES: tl.constexpr,
):  # fmt: skip
    """Return a block of columns of h_f over its bound: real and imaginary parts."""
    BLOCKS: tl.constexpr = H // BLOCK
    share = 1.0 / bound
    h = statics[block] * share[:, None]
    if SIDES:
        take = _from_edge(taps, total, _columns(block, BLOCK), H, K)
        dependent = _through(sizes, bands, block, BLOCKS) + edge[:, None] * take
        h += (most * (total * scale) * share)[:, None] * dependent
    return h, statics[BLOCKS + block] * share[:, None]


@triton.jit
def _from_edge(taps, total, k, H: tl.constexpr, K: tl.constexpr):
    """Return the taps, divided by ``total``, by which columns k take from the Nyquist bin, (1, BLOCK)."""
    taken = tl.zeros(k.shape, tl.float32)
    for j in tl.static_range(K):
        taken = tl.where(H - k + K // 2 == j, tl.load(taps + j).to(tl.float32) / total, taken)
    return taken


@triton.jit
def _to_edge(taps, total, k, H: tl.constexpr, K: tl.constexpr):
    """Return the taps, divided by ``total``, by which columns k give to the Nyquist bin, (1, BLOCK)."""
    given = tl.zeros(k.shape, tl.float32)
    for j in tl.static_range(K):
        given = tl.where(k - H + K // 2 == j, tl.load(taps + j).to(tl.float32) / total, given)
    return given


@triton.jit
def _tap_total(taps, K: tl.constexpr):
    """Return the sum of the taps' sizes: a bound on what the Conv1d makes of numbers up to 1."""
    total = TINY + 0.0
    for j in tl.static_range(K):
        total += tl.abs(tl.load(taps + j).to(tl.float32))
    return total


@triton.jit
def _weighted(re, im, block, BLOCK: tl.constexpr):
    """Return a block of a spectrum as operands of its inverse transform: bins with a mirror image count twice."""
    if block == 0:
        counted = tl.where(_columns(0, BLOCK) == 0, 1.0, 2.0)
        re, im = re * counted, im * counted
    else:
        re, im = re * 2.0, im * 2.0
    return re.to(tl.float16), im.to(tl.float16)


@triton.jit
def _synthesis(res, ims, tables, BLOCKS: tl.constexpr):
    """Return the sum of cosines and sines that a spectrum, in blocks of float16, stands for."""
    out = tl.dot(res[0], tl.trans(tables[0]))
    out = tl.dot(ims[0], tl.trans(tables[BLOCKS]), out)
    for i in tl.static_range(1, BLOCKS):
        out = tl.dot(res[i], tl.trans(tables[i]), out)
        out = tl.dot(ims[i], tl.trans(tables[BLOCKS + i]), out)
    return out


@triton.jit(do_not_specialize=["steps"])
def dense_kernel(
    p, offset, weight, bias, spatial, spectral, static, delta, tables, pad, y,
    D, batch, length, period, scale, p_batch, p_channel, y_batch, y_channel, steps,
    KEPT: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write y = s_2 * (h conv (s_1 * v)), (B, D, L)."""
    H: tl.constexpr = N // 2
    M: tl.constexpr = N // 8
    BLOCKS: tl.constexpr = H // BLOCK
    d = tl.program_id(0).to(tl.int64)
    p_batch, y_batch = tl.multiple_of(p_batch, 8), tl.multiple_of(y_batch, 8)
    p_channel, y_channel = tl.multiple_of(p_channel, 8), tl.multiple_of(y_channel, 8)
    v_own, s_own = parameters(weight, bias, offset, d, K, True), parameters(weight, bias, offset, D + d, K, True)
    t_own = parameters(weight, bias, offset, 2 * D + d, K, True)
    g_own = parameters(spatial, bias, offset, d, K, False) if SIDES else v_own
    matrices, taps = _tables(tables, N, BLOCK), spectral + d * K
    total = _tap_total(taps, K) if SIDES else 1.0
    bands = _bands(taps, total, H, BLOCK, K) if SIDES else ()
    statics = _statics(static, delta, d, d, N, BLOCK, KEPT)
    t = tl.arange(0, N)[None, :]
    for step in range(steps):
        b = ((tl.program_id(1) * steps + step) * ROWS + tl.arange(0, ROWS))[:, None]
        here = b < batch
        b = tl.minimum(b, batch - 1).to(tl.int64)
        pads, row = pad + b * length, p + b * p_batch
        real = _real(t, here, length, pads, FULL, HAS_PAD)
        v = _stream(
            row + d * p_channel, v_own[K + 1], t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        s = _stream(
            row + (D + d) * p_channel, s_own[K + 1], t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        a = _convolved(v, v_own, ROWS, M, K) * _convolved(s, s_own, ROWS, M, K)
        a, a_most = _operand(a, real, FULL)
        if SIDES:
            g, g_most = _operand(_convolved(v, g_own, ROWS, M, K), real, FULL)
            sizes, edge, bound, h_edge = _kernel(
                g, g_most, statics, matrices, bands, taps, total, scale, H, BLOCK, K
            )  # fmt: skip
        else:
            sizes, edge, g_most = (), 0.0, 0.0
            bound = tl.zeros((ROWS,), tl.float32) + statics[2 * BLOCKS + 1]
            h_edge = statics[2 * BLOCKS] / bound
        c_res, c_ims = (), ()
        for i in tl.static_range(BLOCKS):
            h, h_im = _kernel_columns(
                sizes, edge, bound, g_most, statics, bands, taps, total, scale, i, H, BLOCK, K, SIDES
            )  # fmt: skip
            a_re, a_im = tl.dot(a, matrices[i]), tl.dot(a, matrices[BLOCKS + i])
            h_odd = tl.where(_columns(0, BLOCK) == 0, h_edge[:, None], h) if i == 0 else h
            re, im = _weighted(h * a_re - h_im * a_im, h_odd * a_im + h_im * a_re, i, BLOCK)
            c_res, c_ims = c_res + (re,), c_ims + (im,)
        c = _synthesis(c_res, c_ims, matrices, BLOCKS).to(tl.float16)
        s = _stream(
            row + (2 * D + d) * p_channel, t_own[K + 1], t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        out = _convolved(s, t_own, ROWS, M, K) * c.to(tl.float32) * (bound * a_most * (1.0 / N))[:, None]
        if HAS_PAD:
            out = tl.where(real, out, 0.0)
        tl.store(y + b * y_batch + d * y_channel + t, out.to(y.dtype.element_ty), mask=here & (t < length))


@triton.jit
def _put(target, x, factor, inside):
    """Store rows (ROWS, N) times a factor (ROWS,)."""
    tl.store(target, (x * factor[:, None]).to(target.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["first_d", "steps"])
def dense_grad_kernel(
    p, dy, offset, weight, bias, spatial, spectral, static, delta, tables, pad, grads, dstatic, spectra, edges,
    first_d, D, batch, length, period, scale, p_batch, p_channel, dy_batch, dy_channel, steps,
    KEPT: tl.constexpr, SIDES: tl.constexpr, K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr,
    FULL: tl.constexpr, HAS_PAD: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write da and c of grads (channels, 2 + SIDES, B, L) from dy, and what ``dense_conditioning_grad_kernel`` needs.

    dstatic (tiles, channels, N) are the gradients of h0_f, summed over the samples of a tile, columns as in the tables.
    spectra (channels, B, H), float16, are those of h_f, real parts, of rows divided by a factor; edges (channels, 2, B)
    the Nyquist bin's, likewise, and the factor.
    """
    H: tl.constexpr = N // 2
    M: tl.constexpr = N // 8
    BLOCKS: tl.constexpr = H // BLOCK
    own, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = first_d + own
    p_batch, dy_batch, length = tl.multiple_of(p_batch, 8), tl.multiple_of(dy_batch, 8), tl.multiple_of(length, 8)
    p_channel, dy_channel = tl.multiple_of(p_channel, 8), tl.multiple_of(dy_channel, 8)
    v_own, s_own = parameters(weight, bias, offset, d, K, True), parameters(weight, bias, offset, D + d, K, True)
    t_own = parameters(weight, bias, offset, 2 * D + d, K, True)
    g_own = parameters(spatial, bias, offset, d, K, False) if SIDES else v_own
    matrices, taps = _tables(tables, N, BLOCK), spectral + d * K
    total = _tap_total(taps, K) if SIDES else 1.0
    bands = _bands(taps, total, H, BLOCK, K) if SIDES else ()
    statics = _statics(static, delta, d, own, N, BLOCK, KEPT)
    t = tl.arange(0, N)[None, :]
    for step in range(steps):
        b = ((part * steps + step) * ROWS + tl.arange(0, ROWS))[:, None]
        here = b < batch
        b = tl.minimum(b, batch - 1).to(tl.int64)
        pads, row, inside = pad + b * length, p + b * p_batch, here & (t < length)
        real = _real(t, here, length, pads, FULL, HAS_PAD)
        s = _stream(
            row + (2 * D + d) * p_channel, t_own[K + 1], t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        grad = _tile(dy + b * dy_batch + d * dy_channel, t, 0.0, real, FULL)
        e, e_most = _operand(_convolved(s, t_own, ROWS, M, K) * grad, real, FULL)
        v = _stream(
            row + d * p_channel, v_own[K + 1], t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        s = _stream(
            row + (D + d) * p_channel, s_own[K + 1], t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        a = _convolved(v, v_own, ROWS, M, K) * _convolved(s, s_own, ROWS, M, K)
        a, a_most = _operand(a, real, FULL)
        if SIDES:
            g, g_most = _operand(_convolved(v, g_own, ROWS, M, K), real, FULL)
            sizes, edge, bound, h_edge = _kernel(
                g, g_most, statics, matrices, bands, taps, total, scale, H, BLOCK, K
            )  # fmt: skip
        else:
            sizes, edge, g_most = (), 0.0, 0.0
            bound = tl.zeros((ROWS,), tl.float32) + statics[2 * BLOCKS + 1]
            h_edge = statics[2 * BLOCKS] / bound
        factor = a_most * e_most
        tile = dstatic + ((part * steps + step) * tl.num_programs(0) + own) * N
        c_res, c_ims, d_res, d_ims = (), (), (), ()
        for i in tl.static_range(BLOCKS):
            h, h_im = _kernel_columns(
                sizes, edge, bound, g_most, statics, bands, taps, total, scale, i, H, BLOCK, K, SIDES
            )  # fmt: skip
            h_odd = tl.where(_columns(0, BLOCK) == 0, h_edge[:, None], h) if i == 0 else h
            a_re, a_im = tl.dot(a, matrices[i]), tl.dot(a, matrices[BLOCKS + i])
            re, im = _weighted(h * a_re - h_im * a_im, h_odd * a_im + h_im * a_re, i, BLOCK)
            c_res, c_ims = c_res + (re,), c_ims + (im,)
            e_re, e_im = tl.dot(e, matrices[i]), tl.dot(e, matrices[BLOCKS + i])
            re, im = _weighted(h * e_re + h_im * e_im, h_odd * e_im - h_im * e_re, i, BLOCK)
            d_res, d_ims = d_res + (re,), d_ims + (im,)
            dh, dh_im = a_re * e_re + a_im * e_im, a_re * e_im - a_im * e_re
            if i == 0:  # two real bins, of half the weight
                first = _columns(0, BLOCK) == 0
                dh, dh_im = tl.where(first, 0.5 * a_re * e_re, dh), tl.where(first, 0.5 * a_im * e_im, dh_im)
                if SIDES:
                    place = edges + (own * 2 * batch + b)
                    at_edge = tl.sum(tl.where(first, dh_im, 0.0), axis=1) * (2.0 / N)
                    tl.store(place, at_edge[:, None], mask=here)
                    tl.store(place + batch, factor[:, None], mask=here)
            dh *= 2.0 / N
            k = i * BLOCK + tl.arange(0, BLOCK)
            tl.store(tile + k, tl.sum(dh * factor[:, None], axis=0))
            tl.store(tile + H + k, tl.sum(dh_im * (factor * (2.0 / N))[:, None], axis=0))
            if SIDES:
                row_f = spectra + (own * batch + b) * H
                tl.store(row_f + _columns(i, BLOCK), dh.to(tl.float16), mask=here)
        target = grads + (own * (2 + SIDES) * batch + b) * length + t
        c = _synthesis(c_res, c_ims, matrices, BLOCKS)
        plane = batch.to(tl.int64) * length
        _put(target + (1 + SIDES) * plane, c, bound * a_most * (1.0 / N), inside)
        da = _synthesis(d_res, d_ims, matrices, BLOCKS)
        _put(target, da, bound * e_most * (1.0 / N), inside)


@triton.jit(do_not_specialize=["first_d", "steps"])
def dense_conditioning_grad_kernel(
    p, offset, bias, spatial, spectral, tables, pad, spectra, edges, grads, partial,
    first_d, D, batch, length, period, scale, p_batch, p_channel, steps,
    K: tl.constexpr, SHIFT: tl.constexpr, CIRCULAR: tl.constexpr, FULL: tl.constexpr, HAS_PAD: tl.constexpr,
    N: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the conditioning sequence into grads (channels, 3, B, L), from those of h_f.

    partial (parts, channels, K) are the gradients of the spectral taps, summed over the samples of a program.
    """
    H: tl.constexpr = N // 2
    M: tl.constexpr = N // 8
    BLOCKS: tl.constexpr = H // BLOCK
    own, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = first_d + own
    p_batch, p_channel, length = tl.multiple_of(p_batch, 8), tl.multiple_of(p_channel, 8), tl.multiple_of(length, 8)
    g_own = parameters(spatial, bias, offset, d, K, False)
    matrices, taps = _tables(tables, N, BLOCK), spectral + d * K
    total = _tap_total(taps, K)
    bands = _bands(taps, total, H, BLOCK, K)
    t = tl.arange(0, N)[None, :]
    sums = ()
    for j in tl.static_range(K):
        sums = sums + (0.0 * j,)
    for step in range(steps):
        b = ((part * steps + step) * ROWS + tl.arange(0, ROWS))[:, None]
        here = b < batch
        b = tl.minimum(b, batch - 1).to(tl.int64)
        pads = pad + b * length
        real = _real(t, here, length, pads, FULL, HAS_PAD)
        v = _stream(
            p + b * p_batch + d * p_channel, g_own[K + 1], t, here, real, length, pads, period,
            ROWS, M, K, SHIFT, CIRCULAR, FULL, HAS_PAD,
        )  # fmt: skip
        g, g_most = _operand(_convolved(v, g_own, ROWS, M, K), real, FULL)
        place = edges + (own * 2 * batch + b)
        at_edge = tl.sum(tl.load(place, mask=here, other=0.0), axis=1)
        factor = tl.sum(tl.load(place + batch, mask=here, other=0.0), axis=1)
        edge, dm_edge = 0.0, tl.load(taps + K // 2).to(tl.float32) / total * at_edge
        dhs, sizes, res, ims = (), (), (), ()
        for i in tl.static_range(BLOCKS):
            dh = tl.load(spectra + (own * batch + b) * H + _columns(i, BLOCK), mask=here, other=0.0)
            dm_edge += tl.sum(dh.to(tl.float32) * _from_edge(taps, total, _columns(i, BLOCK), H, K), axis=1)
            dhs = dhs + (dh,)
            re, im = tl.dot(g, matrices[i]), tl.dot(g, matrices[BLOCKS + i])
            magnitude = tl.sqrt(re * re + im * im)
            if i == 0:
                first = _columns(0, BLOCK) == 0
                magnitude = tl.where(first, tl.abs(re), magnitude)
                edge = tl.sum(tl.where(first, im, 0.0), axis=1)
            sizes, res, ims = sizes + (magnitude.to(tl.float16),), res + (re,), ims + (im,)
        more = ()
        for j in tl.static_range(K):
            shifts = _shifts(j, H, BLOCK, K)
            products = at_edge * tl.abs(edge) if j == K // 2 else tl.zeros((ROWS,), tl.float32)
            for i in tl.static_range(BLOCKS):
                k = _columns(i, BLOCK)
                met = _through(sizes, shifts, i, BLOCKS) + tl.where(H - k + K // 2 == j, tl.abs(edge)[:, None], 0.0)
                given = tl.where(k - H + K // 2 == j, sizes[i].to(tl.float32) * at_edge[:, None], 0.0)
                products += tl.sum(dhs[i].to(tl.float32) * met + given, axis=1)
            more = more + (sums[j] + tl.sum(products * factor * g_most) * scale,)
        sums = more
        sign = tl.where(edge > 0, dm_edge, tl.where(edge < 0, -dm_edge, 0.0))
        d_res, d_ims = (), ()
        for i in tl.static_range(BLOCKS):
            give = _to_edge(taps, total, _columns(i, BLOCK), H, K)
            dm = _back_through(dhs, bands, i, BLOCKS) + at_edge[:, None] * give
            re, im = res[i], ims[i]
            if i == 0:
                first = _columns(0, BLOCK) == 0
                turn = dm / tl.maximum(tl.sqrt(re * re + tl.where(first, 0.0, im * im)), TINY)
                im = tl.where(first, sign[:, None], turn * im)
            else:
                turn = dm / tl.maximum(tl.sqrt(re * re + im * im), TINY)
                im = turn * im
            re = turn * re
            d_res, d_ims = d_res + (re.to(tl.float16),), d_ims + (im.to(tl.float16),)
        dg = _synthesis(d_res, d_ims, matrices, BLOCKS)
        target = grads + ((own * 3 + 1) * batch + b) * length + t
        _put(target, dg, factor * (total * scale), here & (t < length))
    for j in tl.static_range(K):
        tl.store(partial + (part * tl.num_programs(0) + own) * K + j, sums[j])
