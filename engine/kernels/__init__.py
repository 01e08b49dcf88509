"""Attention and other kernels behind small protocols, each with a plain torch reference."""
