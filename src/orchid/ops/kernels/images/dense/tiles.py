"""Tiles of small images: ROWS samples of one channel, all pixels or all bins, as operands of products with matrices.

With tables C[t, k] = cos(2 pi (k1 s / H + k2 t / W)) and S = -sin, (N, N) float16, zero where there is no pixel or no
bin, a spectrum of (H, F) bins is X_re = x C, X_im = x S, and T^-1 X = (w X_re) C^T + (w X_im) S^T over H W, with w = 2
for bins that stand for two.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

TINY = tl.constexpr(1e-30)


@triton.jit
def places(N: tl.constexpr):
    """Return the place of every number of a matrix (N, N)."""
    return tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]


@triton.jit
def at(matrix, N: tl.constexpr):
    """Load a matrix (N, N)."""
    return tl.load(matrix + places(N))


@triton.jit
def put(matrix, values, N: tl.constexpr):
    """Store a matrix (N, N)."""
    tl.store(matrix + places(N), values)


@triton.jit
def convolution(convs, role, d, D, LOW: tl.constexpr, N: tl.constexpr):
    """Load the matrix of a convolution, and with LOW what bfloat16 leaves of it."""
    own = convs + (role * D + d) * ((1 + LOW) * N * N)
    if LOW:
        return at(own, N), at(own + N * N, N)
    else:
        return (at(own, N),)


@triton.jit
def transforms(tables, N: tl.constexpr):
    """Load C and S."""
    return at(tables, N), at(tables + N * N, N)


@triton.jit
def through(x, matrices):
    """Return pixels (ROWS, N) times the matrix of a convolution."""
    out = tl.dot(x, matrices[0])
    if len(matrices) == 2:
        out = tl.dot(x, matrices[1], out)
    return out


@triton.jit
def back_through(dx, matrices):
    """Return gradients (ROWS, N) times the transposed matrix, in bfloat16's precision, which theirs is."""
    return tl.dot(dx.to(tl.bfloat16), tl.trans(matrices[0]))


@triton.jit
def convolved(row, here, matrices, constants, role, d, D, size, N: tl.constexpr):
    """Return the convolution of pixels, bias and offset added, zero beyond the image, and the pixels."""
    pixel = tl.arange(0, N)[None, :]
    x = tl.load(row + pixel, mask=here & (pixel < size), other=0.0)
    made = through(x, matrices) + tl.load(constants + role * D + d)
    return tl.where(pixel < size, made, 0.0), x


@triton.jit
def operand(x):
    """Return rows as float16, divided by their largest value, and that value (ROWS,)."""
    most = tl.maximum(tl.max(tl.abs(x), axis=1), TINY)
    return (x * (1.0 / most)[:, None]).to(tl.float16), most


@triton.jit
def spectrum(x, waves):
    """Return the bins of rows (ROWS, N) float16: real and imaginary parts."""
    return tl.dot(x, waves[0]), tl.dot(x, waves[1])


@triton.jit
def series(re, im, waves):
    """Return what bins stand for in time, without weights: (re) C^T + (im) S^T."""
    return tl.dot(im.to(tl.float16), tl.trans(waves[1]), tl.dot(re.to(tl.float16), tl.trans(waves[0])))


@triton.jit
def weights(H: tl.constexpr, W: tl.constexpr, N: tl.constexpr):
    """Return w, (1, N): 2 for bins that stand for two, 1 for those of columns zero and Nyquist, 0 for none."""
    F: tl.constexpr = W // 2 + 1
    k = tl.arange(0, N)[None, :]
    k2 = k % F
    return tl.where(k < H * F, tl.where((k2 == 0) | (2 * k2 == W), 1.0, 2.0), 0.0)


@triton.jit
def static_bins(static, d, N: tl.constexpr):
    """Load h0_f, (1, N), real and imaginary parts, and return a bound on the size of its bins."""
    k = tl.arange(0, N)[None, :]
    re, im = tl.load(static + d * (2 * N) + k), tl.load(static + d * (2 * N) + N + k)
    return re, im, tl.max(tl.max(tl.abs(re) + tl.abs(im), axis=1), axis=0) + TINY


@triton.jit
def kernel_bins(made, most, static, waves, band, factor, SIDES: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr):
    """Return h_f over a bound on it, real and imaginary parts, and that bound (ROWS,).

    ``made`` is what conditions the kernel, divided by ``most`` (ROWS,); |G| through ``band`` is to be multiplied by
    ``factor`` times that. ``static`` as ``static_bins`` has it.
    """
    h, h_im, bound = static
    if SIDES:
        re, im = spectrum(made, waves)
        sizes = tl.sqrt(re * re + im * im)
        factor = most * factor
        bound += factor * tl.max(sizes, axis=1)
        h += factor[:, None] * tl.dot(sizes.to(tl.float16), band)
    else:
        bound, h = bound + tl.zeros((ROWS,), tl.float32), h + tl.zeros((ROWS, N), tl.float32)
    share = (1.0 / bound)[:, None]
    return h * share, h_im * share, bound
