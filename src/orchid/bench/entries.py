"""What the runtime benchmark times: every mixer that is installed, every backend, and peers from other packages."""

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from orchid.mixers.registry import create_mixer, list_mixers
from orchid.nn.fused import settings_obstacle
from orchid.nn.mixer import OrchidMixer
from orchid.ops.checks import did_you_mean

# Orchid is compared with float64 at the very length it is timed, others no further than this: attention's float64 form
# is quadratic.
CHECKED_LENGTH = 2048
WITHOUT_CONVOLUTION = (
    "mamba-2 is timed without the package `causal-conv1d`, whose place the library's convolution takes; with it, it is "
    "faster."
)


@dataclass(frozen=True)
class Entry:
    """One thing to time.

    Attributes:
        mixer: its name.
        backend: what computes it.
        dtype: of weights and input.
        build: (d_model, max_length) -> a module (B, L, D) -> (B, L, D).
        checkable: whether a float64 copy of the module says what is right.
        longest: the longest sequence it is timed at unless asked: attention would take minutes.
        remark: what its readers should know, if anything.
    """

    mixer: str
    backend: str
    dtype: torch.dtype
    build: Callable[[int, int], nn.Module]
    checkable: bool = True
    longest: int = 2**17
    remark: str = ""

    @property
    def expected(self) -> type[Exception]:
        """What may go wrong without being a defect of the benchmark: in other packages, anything."""
        return RuntimeError if self.checkable else Exception

    def checked_length(self, length: int) -> int:
        """Return the length at which the entry is compared with its reference before it is timed."""
        return length if self.mixer == "orchid" else min(length, CHECKED_LENGTH)


class FusedAttention(nn.Module):
    """The registered attention with one backend of scaled_dot_product_attention; float64 takes any."""

    def __init__(self, d_model: int, max_length: int, backend: SDPBackend) -> None:
        super().__init__()
        self.layer, self.backend = create_mixer("attention", d_model, max_length), backend

    def forward(self, x: Tensor) -> Tensor:
        """Attend."""
        with nullcontext() if x.dtype == torch.float64 else sdpa_kernel(self.backend):
            return self.layer(x)


class FirstOutput(nn.Module):
    """A layer of another package that returns more than its output."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Return the first output."""
        y = self.layer(x)
        return y[0] if isinstance(y, tuple) else y


def list_entries(device: torch.device, mixers: list[str] | None) -> list[Entry]:
    """Return the entries for a device: all of them, or those of the named mixers."""
    peers = {entry.mixer: entry for entry in _peers()} if device.type == "cuda" else {}
    known = [*list_mixers(), *peers]
    for name in mixers or ():
        if name not in known:
            raise ValueError(f"--mixers {name!r} is not one of {', '.join(known)}{did_you_mean(name, known)}")
    entries: list[Entry] = []
    for name in mixers or known:
        entries += [peers[name]] if name in peers else _own(name, device)
    return entries


def _own(name: str, device: torch.device) -> list[Entry]:
    def build(d_model: int, length: int) -> nn.Module:
        return create_mixer(name, d_model, length)

    if device.type != "cuda":
        return [Entry(name, "torch", torch.float32, build)]
    if name == "attention":
        fused = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
        entries = [Entry(name, key, torch.bfloat16, _attention(kind)) for key, kind in fused.items()]
        return [*entries, Entry(name, "unfused", torch.float32, _attention(SDPBackend.MATH))]
    if name != "orchid":
        return [Entry(name, "torch", torch.bfloat16, build)]
    entries = [
        Entry(name, "torch", torch.float32, _orchid("torch")),
        Entry(name, "torch", torch.bfloat16, _orchid("torch")),
    ]
    if settings_obstacle(OrchidMixer(16, 16)) is None:
        entries.append(Entry(name, "triton", torch.bfloat16, _orchid("triton"), longest=2**20))
    return entries


def _attention(kind: SDPBackend) -> Callable[[int, int], nn.Module]:
    return lambda d_model, length: FusedAttention(d_model, length, kind)


def _orchid(backend: str) -> Callable[[int, int], nn.Module]:
    return lambda d_model, length: OrchidMixer(d_model, length, backend=backend)


def _peers() -> list[Entry]:
    """Return layers of other packages, where they are installed; they have no float64 form to be checked against."""
    # Mamba-2's path that saves memory needs a second package, for its short convolution.
    whole = importlib.util.find_spec("causal_conv1d") is not None
    remarks = {} if whole else {"mamba-2": WITHOUT_CONVOLUTION}
    found = []
    for name, module, symbol, width, settings in (
        ("gated-linear-attention", "fla.layers", "GatedLinearAttention", "hidden_size", {}),
        ("gated-deltanet", "fla.layers", "GatedDeltaNet", "hidden_size", {}),
        ("mamba-2", "mamba_ssm", "Mamba2", "d_model", {"use_mem_eff_path": whole}),
    ):
        package = module.partition(".")[0]
        if importlib.util.find_spec(package) is None:
            continue
        layer = getattr(importlib.import_module(module), symbol)

        def build(
            d_model: int,
            length: int,
            layer: Callable[..., nn.Module] = layer,
            width: str = width,
            settings: dict[str, bool] = settings,
        ) -> nn.Module:
            return FirstOutput(layer(**{width: d_model}, **settings))

        found.append(Entry(name, package, torch.bfloat16, build, checkable=False, remark=remarks.get(name, "")))
    return found
