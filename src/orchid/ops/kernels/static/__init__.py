"""The static kernel: its network, its spectrum, its gradients, and convolutions with it alone."""
