"""Kernels in Triton for NVIDIA GPUs; each also runs on a CPU under Triton's interpreter."""
