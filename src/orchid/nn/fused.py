"""The layer's fused path: which settings and inputs the kernels serve, and the call."""

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from orchid.nn.conditioning import CrossConditioning, PhaseConditioning
from orchid.nn.data_dependent_conv import DataDependentConv
from orchid.nn.implicit_filter import SineNetwork
from orchid.ops.kernels.launch import TRITON, hooked, transformed

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
        "order": (mixer.order, 1),
        "transform": (mixer.transform.name, "dft"),
        "sigma": (mixer.sigma, "identity"),
        "spatial_layers and spectral_layers": ((1, 1) if mixer.conditioning == "static" else layers, (1, 1)),
    }
    for name, (value, served) in wanted.items():
        if value != served:
            return f"the kernels have {name}={served!r}, not {value!r}"
    if mixer.kernel_size not in KERNEL_SIZES:
        return f"the kernels have kernel_size 3 or 5, not {mixer.kernel_size}"
    if mixer.max_length < mixer.kernel_size:
        return f"max_length={mixer.max_length} is shorter than kernel_size={mixer.kernel_size}"
    if mixer.filter_width > WIDEST_FILTER:
        return f"the kernels have filter_width to {WIDEST_FILTER}, not {mixer.filter_width}"
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
        return f"the kernels have kernel_size 3 or 5, not {kernel_size}"
    return None if TRITON else MISSING


def takes_kernels(
    backend: str, obstacle: str | None, x: Tensor, inside: Callable[[], Iterable[nn.Module]], *, interpreted: bool
) -> bool:
    """Return whether the kernels take this input; asked for by name they must.

    ``obstacle`` is why they do not serve the layer's settings, ``inside`` returns the modules they would pass by.
    """
    if backend == "torch":
        return False
    obstacle = obstacle or input_obstacle(x, backend, interpreted)
    if obstacle is None and not torch.compiler.is_compiling():
        obstacle = surroundings_obstacle(inside())
    if obstacle is not None and backend == "triton":
        raise ValueError(f"backend='triton' cannot serve: {obstacle}; use 'auto' or 'torch'")
    if obstacle is not None and x.is_cuda and not torch.compiler.is_compiling():
        log_once(obstacle)
    return obstacle is None


def surroundings_obstacle(inside: Iterable[nn.Module]) -> str | None:
    """Return why the kernels would change what surrounds the layer, or None; asked at every call not compiled."""
    if any(map(hooked, inside)):
        return "a module inside the layer has hooks, which the kernels would pass by"
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

    p (B, 3 D, L) are the projected streams and u (B, D, M) the projected context, without the projection's bias.
    """
    from orchid.ops.kernels.mix import fused_mix
    from orchid.ops.kernels.operands import Decay

    (stage,) = mixer.stages
    assert isinstance(stage, DataDependentConv) and mixer.short_conv.bias is not None
    conditioning, weight = stage.conditioning, mixer.short_conv.weight
    if isinstance(conditioning, PhaseConditioning):
        (taps,) = conditioning.spatial.taps()
        spatial, spectral = taps[None], conditioning.spectral.weights[0]
    elif isinstance(conditioning, CrossConditioning):
        spatial = torch.stack(conditioning.key.taps() + conditioning.query.taps())
        spectral = conditioning.spectral.weights[0]
    else:
        spatial, spectral = weight.new_empty(0, mixer.d_model, mixer.kernel_size), weight[: mixer.d_model].detach()
    static, network = stage.static, stage.static.filter
    trained, decay = static.kept is None, Decay(*network.decay())
    return fused_mix(
        p,
        u,
        mixer.in_proj.bias,
        weight,
        mixer.short_conv.bias,
        spatial,
        spectral,
        fused_hidden(network) if trained else None,
        network.output if trained else None,
        static.delta,
        static.kept,
        pad=pad,
        u_pad=u_pad,
        n=mixer.n,
        period=mixer.max_length,
        padding=mixer.short_padding,
        norm=mixer.norm,
        decay=decay,
    )


def fused_residual(mixer: "OrchidMixer", y: Tensor, x: Tensor) -> Tensor:
    """Return y (B, D, L) plus the residual long convolution of x (B, L, D)."""
    from orchid.ops.kernels.operands import Decay, Static
    from orchid.ops.kernels.static_conv import plus_static_conv

    assert mixer.residual_conv is not None
    static = mixer.residual_conv.static
    network, trained = static.filter, static.kept is None
    kernel = Static(
        fused_hidden(network) if trained else None,
        network.output if trained else None,
        static.delta,
        None if static.kept is None else torch.view_as_real(static.kept),
        mixer.n,
        Decay(*network.decay()),
        y.dtype == torch.bfloat16,
    )
    return plus_static_conv(y, x, kernel)


def fused_hidden(network: SineNetwork) -> Tensor:
    """Return a static kernel's network before its output, (n, W)."""
    from orchid.ops.kernels.sines import WIDEST_EMBEDDING, sines

    if network.weights[0].shape[1] > WIDEST_EMBEDDING:
        return network.hidden()
    return sines(network.weights, network.biases, network.frequency, *network.lags())
