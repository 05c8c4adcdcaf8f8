"""Any length and precision: kernels around the library's FFT."""
