"""Benchmarks: speed and memory of the mixers, as ratios within one run."""
