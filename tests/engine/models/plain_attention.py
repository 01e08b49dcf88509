"""The simplest attention that is right: one sequence, keys and values kept whole."""

from __future__ import annotations

import torch
from torch import Tensor


class PlainAttention:
    """Implements `Attention` for one sequence; calls for a layer extend it."""

    def __init__(self) -> None:
        self._cache: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        window: int | None = None,
        soft_cap: float | None = None,
    ) -> Tensor:
        if layer in self._cache:
            old_k, old_v = self._cache[layer]
            k, v = torch.cat([old_k, k]), torch.cat([old_v, v])
        else:
            k, v = k.clone(), v.clone()
        self._cache[layer] = k, v
        group = q.shape[1] // k.shape[1]
        scores = torch.einsum("qhd,khd->hqk", q, k.repeat_interleave(group, 1)) * scale
        if soft_cap is not None:
            scores = (scores / soft_cap).tanh() * soft_cap
        query_at = torch.arange(k.shape[0] - q.shape[0], k.shape[0])[:, None]
        key_at = torch.arange(k.shape[0])
        seen = key_at <= query_at
        if window is not None:
            seen &= key_at > query_at - window
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        attended = torch.einsum("hqk,khd->qhd", weights, v.repeat_interleave(group, 1))
        return attended.reshape(q.shape[0], -1)
