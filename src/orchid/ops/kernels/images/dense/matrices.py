"""Convolutions as matrices: of each channel's taps in time and in frequency, and the taps' gradients from theirs.

A convolution in time, on the torus, is x M with M[q, t] the tap by which pixel t takes pixel q. The frequency Conv2d is
|G| M over the bins of a half spectrum (H, F): rows of bins lie on a circle, columns end at zero and Nyquist. These two
columns are their own mirror images, and there a kernel's spectrum is replaced by its Hermitian part: of a real one, the
mean of bins k and -k.

The image's sizes are no constants here: with them, the compiler knows how small quotients and remainders are, counts in
pairs of 16 bits, and ptxas (12.8, 12.9 and 13.0) leaves out what it is to add to half a pair (``add.s16x2``).
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.images.dense.tiles import at, put
from orchid.ops.kernels.launch import launched


@triton.jit
def _taken_in_time(i, j, q, t, H, W, K: tl.constexpr):
    """Return 1 where pixel t takes pixel q by tap (i, j), 0 elsewhere."""
    row, column = (t // W + i - K // 2 + K * H) % H, (t % W + j - K // 2 + K * W) % W
    return ((q == row * W + column) & (t < H * W)).to(tl.float32)


@triton.jit
def _neighbour(q, k1, k2, i, j, F, H, K: tl.constexpr):
    """Return 1 where bin q is what tap (i, j) meets at bin (k1, k2)."""
    row, column = (k1 + i - K // 2 + K * H) % H, k2 + j - K // 2
    return ((q == row * F + column) & (column >= 0) & (column < F)).to(tl.float32)


@triton.jit
def _taken_in_frequency(i, j, q, k, H, W, K: tl.constexpr):
    """Return how much of bin q the tap (i, j) brings to bin k."""
    F = W // 2 + 1
    k1, k2 = k // F, k % F
    own = _neighbour(q, k1, k2, i, j, F, H, K)
    mirrored = _neighbour(q, (H - k1) % H, k2, i, j, F, H, K)
    return tl.where(k < H * F, tl.where((2 * k2) % W == 0, 0.5 * (own + mirrored), own), 0.0)


@launched
@triton.jit(do_not_specialize=["H", "W"])
def dense_image_matrices_kernel(
    offset, weight, bias, spatial, spectral, convs, constants, bands, totals, D, H, W,
    LOW: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Write the matrices of a channel's convolutions; a program takes one, v's, s_1's, s_2's, Conv2d_t's or Conv2d_f's.

    convs (4, D, 1 + LOW, N, N) bfloat16, with LOW what bfloat16 leaves of a number beside it; constants (4, D): what a
    pixel has of bias and offset; bands (D, N, N) float16, of taps over totals (D,), the sum of their sizes.
    """
    d, role = tl.program_id(0), tl.program_id(1)
    q, t = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    made, sizes, plain = tl.zeros((N, N), tl.float32), 1e-30, 0.0
    for tap in range(K * K):
        i, j = tap // K, tap % K
        if role == 4:
            own = tl.load(spectral + d * (K * K) + tap).to(tl.float32)
            made += own * _taken_in_frequency(i, j, q, t, H, W, K)
        else:
            taps = spatial + d * (K * K) if role == 3 else weight + (role * D + d) * (K * K)
            own = tl.load(taps + tap).to(tl.float32)
            made += own * _taken_in_time(i, j, q, t, H, W, K)
        sizes += tl.abs(own)
        plain += own
    if role == 4:
        put(bands + d * (N * N), (made / sizes).to(tl.float16), N)
        tl.store(totals + d, sizes)
    else:
        target = convs + (role * D + d) * ((1 + LOW) * N * N)
        high = made.to(tl.bfloat16)
        put(target, high, N)
        if LOW:
            put(target + N * N, (made - high.to(tl.float32)).to(tl.bfloat16), N)
        stream = d if role == 3 else role * D + d
        constant = tl.load(offset + stream).to(tl.float32) * plain
        if role < 3:
            constant += tl.load(bias + stream).to(tl.float32)
        tl.store(constants + role * D + d, constant)


@launched
@triton.jit(do_not_specialize=["parts", "H", "W"])
def dense_image_totals_kernel(
    offset, weight, spatial, products, sums, bands, doffset, dweight, dbias, dspatial, dspectral, D, parts, H, W,
    SIDES: tl.constexpr, K: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Write the gradients of taps, biases and offsets from those of the matrices; a program takes one convolution.

    products (parts, 3 + SIDES, D, N, N) and sums (parts, 3 + SIDES, D): of pixels with gradients, and of the latter;
    bands (parts, D, N, N), of what Conv2d_f meets with its gradients.
    """
    d, role, roles = tl.program_id(0), tl.program_id(1), 3 + SIDES
    q, t = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    given, total, beside = tl.zeros((N, N), tl.float32), 0.0, 0.0
    for part in range(parts):
        if role == 4:
            given += at(bands + (part * D + d) * (N * N), N)
        else:
            place = (part * roles + role) * D + d
            given += at(products + place.to(tl.int64) * (N * N), N)
            total += tl.load(sums + place)
            if SIDES:  # v's offset is that of what conditions the kernel, too
                beside += tl.where(role == 0, tl.load(sums + (part * roles + 3) * D + d), 0.0)
    stream = tl.where(role == 3, d, role * D + d)
    own = 0.0 if role == 4 else tl.load(offset + stream).to(tl.float32)
    passed = 0.0
    for tap in range(K * K):
        i, j = tap // K, tap % K
        if role == 4:
            met = tl.sum(_taken_in_frequency(i, j, q, t, H, W, K) * given)
            tl.store(dspectral + d * (K * K) + tap, met.to(dspectral.dtype.element_ty))
        else:
            met = tl.sum(_taken_in_time(i, j, q, t, H, W, K) * given) + own * total
            if role == 3:
                tl.store(dspatial + d * (K * K) + tap, met.to(dspatial.dtype.element_ty))
            else:
                place = (role * D + d) * (K * K) + tap
                tl.store(dweight + place, met.to(dweight.dtype.element_ty))
                passed += total * tl.load(weight + place).to(tl.float32)
                if SIDES:
                    passed += beside * tl.load(spatial + d * (K * K) + tap).to(tl.float32)
    if role < 3:
        tl.store(dbias + stream, total.to(dbias.dtype.element_ty))
        tl.store(doffset + stream, passed.to(doffset.dtype.element_ty))
