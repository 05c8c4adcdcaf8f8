"""Mixers by name: what makes comparisons one flag apart."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from orchid.mixers.attention import Attention
from orchid.mixers.ckconv import CKConv
from orchid.mixers.h3 import H3
from orchid.mixers.hyena import Hyena
from orchid.mixers.mamba import Mamba
from orchid.mixers.monarch import MonarchMixer
from orchid.mixers.performer import Performer
from orchid.mixers.s4 import S4
from orchid.nn.mixer import OrchidMixer
from orchid.ops.checks import did_you_mean

MIXERS: dict[str, Callable[..., nn.Module]] = {
    "attention": Attention,
    "ckconv": CKConv,
    "h3": H3,
    "hyena": Hyena,
    "mamba": Mamba,
    "monarch": MonarchMixer,
    "orchid": OrchidMixer,
    "performer": Performer,
    "s4": S4,
}


def list_mixers() -> list[str]:
    """Return the names ``create_mixer`` knows."""
    return sorted(MIXERS)


def create_mixer(name: str, d_model: int, max_length: int, **options: Any) -> nn.Module:
    """Build the mixer called ``name``: a module (x (B, L, D), mask (B, L) bool or None) -> y (B, L, D).

    Args:
        name: one of ``list_mixers()``.
        d_model: D.
        max_length: the longest L.
        **options: the mixer's own keyword options; one it does not have is an error.
    """
    if not isinstance(name, str) or name not in MIXERS:
        raise ValueError(f"mixer {name!r} is not one of {', '.join(list_mixers())}{did_you_mean(str(name), MIXERS)}")
    build = MIXERS[name]
    known = [p for p in inspect.signature(build).parameters if p not in ("d_model", "max_length")]
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known)
            causal = ", as it is not causal" if "causal" in option else ""
            raise ValueError(f"mixer {name!r} has no option {option!r}{causal}{hint} (it has {', '.join(known)})")
    return build(d_model, max_length, **options)
