"""The layers of an implicit filter's sine network, forward and backward.

z_0 = PosEmb(lag),  x_i = f (W_i z_(i-1) + b_i),  z_i = sin(x_i),  i = 1, 2, 3, with one vector of frequencies f.

Lags are those of a circle, or of a torus, row by row, with the embeddings of both axes side by side. x_1 is a handful
of products a lag: it is computed wherever it is read. Its products, and those of the forward pass, take three TF32
terms, float32 but for the last bits: an error of x is one of phase, which the frequency multiplies. Gradients take
PRECISION: one term where the layer's streams have no more.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from orchid.ops.kernels.launch import launched
from orchid.ops.kernels.static.kernels import product
from orchid.ops.kernels.static.waves import cosine, sine

PI = tl.constexpr(3.141592653589793)


@triton.jit
def _signed(t, n, unit):
    """Return lags of a circle of n in half grids, (ROWS, 1)."""
    return (tl.where(t < n - n // 2, t, t - n).to(tl.float32) * unit)[:, None]


@triton.jit
def _embedded(
    t, down, unit, across, across_unit, AXES: tl.constexpr, EMBEDDING: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Return PosEmb of lags t, (tau, cos(pi e tau), sin(pi e tau)) of each axis, zeros beyond: (ROWS, COLUMNS).

    There are ``down`` rows of lags, and with two AXES ``across`` in a row; units are in half grids.
    """
    OWN: tl.constexpr = EMBEDDING // AXES
    HALF: tl.constexpr = OWN // 2
    e = tl.arange(0, COLUMNS)[None, :]
    inside = e < EMBEDDING
    if AXES == 1:
        tau = _signed(t, down, unit)
    else:
        tau = tl.where(e < OWN, _signed(t // across, down, unit), _signed(t % across, across, across_unit))
        e = tl.where(e < OWN, e, e - OWN)
    angle = tau * (tl.where(e > HALF, e - HALF, e).to(tl.float32) * PI)
    wave = tl.where(e > HALF, sine(angle), cosine(angle))
    return tl.where(inside, tl.where(e == 0, tau, wave), 0.0)


@triton.jit
def _columns(x, w, width):
    """Load numbers of a layer's outputs w, zero beyond its width: (1, BLOCK)."""
    return tl.load(x + w, mask=w < width, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _tile(x, t, w, n, width):
    """Load x (n, W) at lags t and columns w, zero outside."""
    inside = (t < n)[:, None] & (w < width)[None, :]
    return tl.load(x + t[:, None] * width + w[None, :], mask=inside, other=0.0)


@triton.jit
def _before(
    x, weight, bias, frequency, t, w, n, down, unit, across, across_unit, width,
    SECOND: tl.constexpr, AXES: tl.constexpr, EMBEDDING: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Return columns w of what a layer's input is the sine of: stored, or, for the SECOND layer, computed."""
    if SECOND:
        e = tl.arange(0, COLUMNS)[:, None]
        inside = (w < width)[None, :] & (e < EMBEDDING)
        taps = tl.load(weight + w[None, :] * EMBEDDING + e, mask=inside, other=0.0).to(tl.float32)
        sums = tl.dot(
            _embedded(t, down, unit, across, across_unit, AXES, EMBEDDING, COLUMNS), taps, input_precision="tf32x3"
        )
        return _columns(frequency, w, width) * (sums + _columns(bias, w, width))
    else:
        return _tile(x, t, w, n, width)


@launched
@triton.jit
def sine_layer_kernel(
    before, first_weight, first_bias, weight, bias, frequency, x, z, n, down, unit, across, across_unit, width,
    SECOND: tl.constexpr, LAST: tl.constexpr, AXES: tl.constexpr, EMBEDDING: tl.constexpr, COLUMNS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write x_i (n, W) from x_(i-1), the SECOND layer's from lags; z_i too where the layer is the LAST."""
    t, w = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for first in range(0, width, BLOCK):
        k = first + tl.arange(0, BLOCK)
        given = _before(
            before, first_weight, first_bias, frequency, t, k, n, down, unit, across, across_unit, width,
            SECOND, AXES, EMBEDDING, COLUMNS,
        )  # fmt: skip
        inside = (k < width)[:, None] & (w < width)[None, :]
        taps = tl.load(weight + w[None, :] * width + k[:, None], mask=inside, other=0.0).to(tl.float32)
        total += tl.dot(sine(given), taps, input_precision="tf32x3")
    total = _columns(frequency, w, width) * (total + _columns(bias, w, width))
    own, inside = t[:, None] * width + w[None, :], (t < n)[:, None] & (w < width)[None, :]
    tl.store(x + own, total, mask=inside)
    if LAST:
        tl.store(z + own, sine(total), mask=inside)


@launched
@triton.jit(do_not_specialize=["steps"])
def sine_layer_grad_kernel(
    grad, x, before, first_weight, first_bias, weight, frequency, dbefore, shares,
    n, down, unit, across, across_unit, width, steps,
    SECOND: tl.constexpr, LAST: tl.constexpr, AXES: tl.constexpr, EMBEDDING: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write dx_(i-1) (n, W) from dx_i, the LAST layer's from dz_i; and what a program's lags give to the parameters.

    A row of shares (parts, W, 2 W + E + 3) is an output w of all layers: the sums over lags of dx_i[w] z_(i-1) of the
    last layer, the second and the first, then those of dx_i[w]. The SECOND layer writes the first one's, not dx_1.
    """
    PLACE: tl.constexpr = 1 if SECOND else 0
    size = 2 * width + EMBEDDING + 3
    part, k = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    w, e = tl.arange(0, WIDTH), tl.arange(0, COLUMNS)
    inside = (w < width)[:, None] & (k < width)[None, :]
    taps = tl.load(weight + w[:, None] * width + k[None, :], mask=inside, other=0.0).to(tl.float32)
    taps *= tl.load(frequency + w, mask=w < width, other=0.0).to(tl.float32)[:, None]
    total, sums = tl.zeros((WIDTH, BLOCK), tl.float32), tl.zeros((WIDTH,), tl.float32)
    first_total, first_sums = tl.zeros((BLOCK, COLUMNS), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        t = (part * steps + step) * ROWS + tl.arange(0, ROWS)
        dx = _tile(grad, t, w, n, width)
        if LAST:
            dx *= cosine(_tile(x, t, w, n, width))
        given = _before(
            before, first_weight, first_bias, frequency, t, k, n, down, unit, across, across_unit, width,
            SECOND, AXES, EMBEDDING, COLUMNS,
        )  # fmt: skip
        total += product(tl.trans(dx), sine(given), PRECISION)
        sums += tl.sum(dx, axis=0)
        dgiven = product(dx, taps, PRECISION) * cosine(given)
        if SECOND:
            lags = _embedded(t, down, unit, across, across_unit, AXES, EMBEDDING, COLUMNS)
            first_total += product(tl.trans(dgiven), lags, PRECISION)
            first_sums += tl.sum(dgiven, axis=0)
        else:
            there = (t < n)[:, None] & (k < width)[None, :]
            tl.store(dbefore + t[:, None] * width + k[None, :], dgiven, mask=there)
    rows = shares + part * width * size
    tl.store(rows + w[:, None] * size + PLACE * width + k[None, :], total, mask=inside)
    tl.store(rows + w * size + 2 * width + EMBEDDING + PLACE, sums, mask=(w < width) & (tl.program_id(1) == 0))
    if SECOND:
        own = rows + k * size + 2 * width
        tl.store(own[:, None] + e[None, :], first_total, mask=(k < width)[:, None] & (e < EMBEDDING)[None, :])
        tl.store(own + EMBEDDING + 2, first_sums, mask=k < width)


@triton.jit
def _of_outputs(w1, b1, w2, b2, w3, b3, w, c, width, EMBEDDING: tl.constexpr):
    """Return the addresses of column c of row w of the shares among the parameters: a tuple, and which hold it."""
    end = 2 * width + EMBEDDING
    return (
        (w3 + w * width + c, c < width),
        (w2 + w * width + c - width, (c >= width) & (c < 2 * width)),
        (w1 + w * EMBEDDING + c - 2 * width, (c >= 2 * width) & (c < end)),
        (b3 + w + c * 0, c == end),
        (b2 + w + c * 0, c == end + 1),
        (b1 + w + c * 0, c == end + 2),
    )


@launched
@triton.jit(do_not_specialize=["parts"])
def sine_totals_kernel(
    shares, frequency, w1, b1, w2, b2, w3, b3, dfrequency, dw1, db1, dw2, db2, dw3, db3, parts, width,
    EMBEDDING: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of all parameters: a program takes output w of every layer, which share f[w]."""
    w, c = tl.program_id(0), tl.arange(0, COLUMNS)
    size = 2 * width + EMBEDDING + 3
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        inside = (part < parts)[:, None] & (c < size)[None, :]
        total += tl.load(shares + (part[:, None] * width + w) * size + c[None, :], mask=inside, other=0.0)
    total = tl.sum(total, axis=0)
    f = tl.load(frequency + w).to(tl.float32)
    values = tl.zeros((COLUMNS,), tl.float32)
    parameters = _of_outputs(w1, b1, w2, b2, w3, b3, w, c, width, EMBEDDING)
    targets = _of_outputs(dw1, db1, dw2, db2, dw3, db3, w, c, width, EMBEDDING)
    for i in tl.static_range(6):
        values += tl.load(parameters[i][0], mask=parameters[i][1], other=0.0).to(tl.float32)
        tl.store(targets[i][0], f * total, mask=targets[i][1])
    tl.store(dfrequency + w, tl.sum(total * values))
