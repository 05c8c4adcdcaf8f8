"""Fused GPU kernels in Triton, behind ``torch.library`` operators; imported only where they are used.

``mix.py`` is the layer, ``passes.py`` chooses its path; docs/kernels.md explains them.
"""
