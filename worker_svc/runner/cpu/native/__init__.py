"""Kernels in C++ for the CPU path, built at first start where there is a compiler."""
