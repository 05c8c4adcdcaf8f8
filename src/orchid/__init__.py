"""Orchid: flexible and data-dependent convolution for sequence modeling, in PyTorch."""

from orchid._version import __version__
from orchid.mixers.registry import create_mixer, list_mixers
from orchid.models.block import OrchidBlock
from orchid.nn.block_diagonal import BlockDiagonalLinear
from orchid.nn.implicit_filter import ImplicitFilter
from orchid.nn.mixer import OrchidMixer
from orchid.nn.mixer2d import OrchidMixer2d

__all__ = [
    "BlockDiagonalLinear",
    "ImplicitFilter",
    "OrchidBlock",
    "OrchidMixer",
    "OrchidMixer2d",
    "__version__",
    "create_mixer",
    "list_mixers",
]
