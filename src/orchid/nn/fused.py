"""The layer's fused path: which settings and inputs the kernels serve, and the call."""

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from orchid.nn.conditioning import CrossConditioning, PhaseConditioning
from orchid.nn.data_dependent_conv import DataDependentConv
from orchid.nn.lag_network import LagNetwork
from orchid.nn.projections import bias_of
from orchid.ops.kernels.launch import TRITON
from orchid.ops.kernels.surroundings import distributed, hooked, transformed

if TYPE_CHECKING:
    from orchid.nn.mixer import OrchidMixer

BACKENDS = ("auto", "torch", "triton")
KERNEL_SIZES = (3, 5)
# The static kernel's products hold a row of this many numbers in shared memory.
WIDEST_FILTER = 256
MISSING = "Triton is not installed (pip install 'orchid-torch[kernels]')"
logger = logging.getLogger("orchid")


def settings_obstacle(mixer: "OrchidMixer") -> str | None:
    """Return why the kernels do not serve a layer of these settings, or None."""
    layers = (mixer.spatial_layers, mixer.spectral_layers)
    wanted = {
        "sigma": (mixer.sigma, "identity"),
        "spatial_layers and spectral_layers": ((1, 1) if mixer.conditioning == "static" else layers, (1, 1)),
    }
    for name, (value, served) in wanted.items():
        if value != served:
            return f"the kernels support {name}={served!r}, not {value!r}"
    if mixer.kernel_size not in KERNEL_SIZES:
        return f"the kernels support kernel_size 3 or 5, not {mixer.kernel_size}"
    if mixer.max_length < mixer.kernel_size:
        return f"max_length={mixer.max_length} is shorter than kernel_size={mixer.kernel_size}"
    if mixer.filter_width > WIDEST_FILTER:
        return f"the kernels support filter_width up to {WIDEST_FILTER}, not {mixer.filter_width}"
    return None if TRITON else MISSING


def input_obstacle(x: Tensor, backend: str, interpreted: bool) -> str | None:
    """Return why the kernels do not serve this input, or None."""
    interpreted = interpreted and backend == "triton"
    if not x.is_cuda and not interpreted:
        return f"x is on {x.device.type!r} and the kernels need a CUDA device"
    if x.dtype == torch.float64:
        return "x has dtype torch.float64 and the kernels compute in float32"
    return None


def image_settings_obstacle(kernel_size: int) -> str | None:
    """Return why the kernels do not serve a layer of images of these settings, or None."""
    if kernel_size not in KERNEL_SIZES:
        return f"the kernels support kernel_size 3 or 5, not {kernel_size}"
    return None if TRITON else MISSING


def takes_kernels(
    backend: str,
    obstacle: str | None,
    x: Tensor,
    inside: Callable[[], Iterable[nn.Module]] = tuple,
    *,
    interpreted: bool,
) -> bool:
    """Return whether the kernels take this input; asked for by name they must.

    ``obstacle`` is why they do not serve the layer's settings, ``inside`` returns the modules they would pass by.
    """
    if backend == "torch":
        return False
    obstacle = obstacle or input_obstacle(x, backend, interpreted)
    if obstacle is None and not torch.compiler.is_compiling():
        obstacle = surroundings_obstacle(x, inside())
    if obstacle is not None and backend == "triton":
        raise ValueError(f"backend='triton' cannot serve: {obstacle}; use 'auto' or 'torch'")
    if obstacle is not None and x.is_cuda and not torch.compiler.is_compiling():
        log_once(obstacle)
    return obstacle is None


def surroundings_obstacle(x: Tensor, inside: Iterable[nn.Module]) -> str | None:
    """Return why the kernels would change what surrounds the layer, or None; asked at every call not compiled."""
    if any(map(hooked, inside)):
        return "a module inside the layer has hooks, which the kernels would pass by"
    if distributed(x):
        return "x is a DTensor, which the kernels have no rule for"
    if transformed():
        return "the kernels have no rule for torch.func transforms and forward-mode derivatives"
    return None


@lru_cache(maxsize=64)
def log_once(reason: str) -> None:
    """Tell why a layer takes the torch path where it might have been fused."""
    logger.info("the torch backend serves this layer: %s", reason)


def fused_convolution(
    mixer: "OrchidMixer", p: Tensor, pad: Tensor | None, u: Tensor | None, u_pad: Tensor | None
) -> Tensor:
    """Return what stands between the projections, (B, D, L).

    p (B, (m + 2) D, L) are the projected streams and u (B, D, M) the projected context, without the projection's bias.
    """
    y = p[:, : mixer.d_model]
    for number in range(mixer.order):
        y = _fused_stage(mixer, number, _stage_streams(mixer, number, p, y), pad, u, u_pad)
        u, u_pad = None, None  # later stages are conditioned on their input
    return y


def _stage_streams(mixer: "OrchidMixer", number: int, p: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the streams v, s_1, s_2 of a stage, (B, 3 D, L), their offsets, and taps and biases of their convolutions.

    A stage is a layer of order 1. In a chain its input z passes through as it is, by a tap of 1 at its own position,
    and a gate that comes before the next stage is 1: no taps, and a bias of 1.
    """
    offset, weight, bias = bias_of(mixer.in_proj, p), mixer.short_conv.weight, mixer.short_conv.bias
    assert bias is not None
    if mixer.order == 1:
        return p, offset, weight, bias
    width, taps, first, last = mixer.d_model, mixer.kernel_size, number == 0, number == mixer.order - 1
    own = slice((number + 1) * width, (number + 2) * width)
    close = slice(own.stop, own.stop + width)
    here = taps - 1 - (taps // 2 if mixer.short_padding == "same" else 0)
    passing = (torch.arange(taps, device=weight.device) == here).to(weight.dtype).expand(width, -1)
    zero, one = torch.zeros_like(bias[:width]), torch.ones_like(bias[:width])
    return (
        p[:, : close.stop] if first else torch.cat((z, p[:, own.start : close.stop]), dim=1),
        offset[: close.stop] if first else torch.cat((zero.to(offset.dtype), offset[own.start : close.stop])),
        torch.cat((weight[:width] if first else passing, weight[own], weight[close] * last)),
        torch.cat((bias[:width] if first else zero, bias[own], bias[close] if last else one)),
    )


def _fused_stage(
    mixer: "OrchidMixer",
    number: int,
    streams: tuple[Tensor, Tensor, Tensor, Tensor],
    pad: Tensor | None,
    u: Tensor | None,
    u_pad: Tensor | None,
) -> Tensor:
    """Return s_2 * (h conv (s_1 * v)) of a stage's streams, (B, D, L)."""
    from orchid.ops.kernels.mix import fused_mix
    from orchid.ops.kernels.operands import Decay

    p, offset, weight, bias = streams
    stage = mixer.stages[number]
    assert isinstance(stage, DataDependentConv)
    conditioning = stage.conditioning
    if isinstance(conditioning, PhaseConditioning):
        (taps,) = conditioning.spatial.taps()
        spatial, spectral = taps[None], conditioning.spectral.weights[0]
    elif isinstance(conditioning, CrossConditioning):
        spatial = torch.stack(conditioning.key.taps() + conditioning.query.taps())
        spectral = conditioning.spectral.weights[0]
    else:
        spatial, spectral = weight.new_empty(0, mixer.d_model, mixer.kernel_size), weight[: mixer.d_model].detach()
    static, network = stage.static, stage.static.filter
    trained, decay, mirrored = static.kept is None, Decay(*network.decay()), mixer.transform.name == "dct"
    return fused_mix(
        p,
        u,
        offset,
        weight,
        bias,
        spatial,
        spectral,
        fused_hidden(network, half=p.dtype == torch.bfloat16) if trained else None,
        network.output if trained else None,
        static.delta,
        static.kept_parts,
        pad=pad,
        u_pad=u_pad,
        n=mixer.n,
        period=mixer.max_length,
        padding=mixer.short_padding,
        norm=mixer.norm,
        decay=decay,
        mirrored=mirrored,
    )


def fused_residual(mixer: "OrchidMixer", y: Tensor, x: Tensor) -> Tensor:
    """Return y (B, D, L) plus the residual long convolution of x (B, L, D)."""
    from orchid.ops.kernels.operands import Decay, Static
    from orchid.ops.kernels.static.conv import plus_static_conv

    assert mixer.residual_conv is not None
    static = mixer.residual_conv.static
    network, trained = static.filter, static.kept is None
    kernel = Static(
        fused_hidden(network, half=y.dtype == torch.bfloat16) if trained else None,
        network.output if trained else None,
        static.delta,
        static.kept_parts,
        mixer.n,
        Decay(*network.decay()),
        y.dtype == torch.bfloat16,
    )
    return plus_static_conv(y, x, kernel)


def fused_hidden(network: LagNetwork, *, half: bool) -> Tensor:
    """Return a static kernel's network before its output, (n, W); ``half``, for streams of bfloat16."""
    from orchid.ops.kernels.static.network import WIDEST_EMBEDDING, sines

    if network.weights[0].shape[1] > WIDEST_EMBEDDING:
        return network.hidden()
    return sines(network.weights, network.biases, network.frequency, *network.lags(), half=half)
