"""Short rows, n = 64 and 128: one product a transform."""
