"""Fused GPU kernels in Triton: ``mix.py`` is the layer, ``passes.py`` chooses its path; docs/kernels.md explains them."""
