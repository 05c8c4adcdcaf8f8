"""Sequence mixers behind one contract, ``mixer(x, mask=None) -> y`` on (B, L, D), and a registry by name."""

from orchid.mixers.registry import create_mixer, list_mixers

__all__ = ["create_mixer", "list_mixers"]
