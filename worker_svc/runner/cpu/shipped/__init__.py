"""Kernels that come compiled, in wheels and images: one library for each kind of CPU."""
