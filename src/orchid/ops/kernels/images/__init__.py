"""The layer of images, around the library's two-dimensional FFT."""
