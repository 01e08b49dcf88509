"""Root-mean-square normalization."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x` over the root of its mean square in the last dimension, times `weight`.

    Statistics are taken in float32. A quotient of a narrower dtype is rounded before it is
    multiplied with the weight, as most models were trained; a float32 weight says that it is
    rounded after that, as in Gemma."""
    if x.dtype == torch.float32 and weight.dim() == 1:
        return functional.rms_norm(x, weight.shape, weight, eps)
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(eps))
    if weight.dtype == torch.float32:
        return wide.mul(scale).mul_(weight).to(x.dtype)
    return wide.mul(scale).to(x.dtype).mul_(weight)
