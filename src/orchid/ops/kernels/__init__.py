"""Fused GPU kernels in Triton, behind ``torch.library`` operators; imported only where they are used."""
