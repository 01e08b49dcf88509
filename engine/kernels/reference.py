"""Paged attention written out plainly in float32: what every faster kernel is tested against."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.attention import AttentionLayout, SequenceSpan, visible
from engine.kv.kv_cache import KVCache


class ReferenceAttention:
    """`Attention` by gather, matrix product and softmax, sequence by sequence."""

    def __init__(self, cache: KVCache, layout: AttentionLayout) -> None:
        self._cache = cache
        self._layout = layout

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
        keys, values = self._cache.layer(layer)
        keys[self._layout.slot_mapping] = k
        values[self._layout.slot_mapping] = v
        out = torch.empty_like(q)
        group = q.shape[1] // k.shape[1]
        for span in self._layout.spans:
            slots = _slots(span, q.device)
            rows = slice(span.query_start, span.query_start + span.num_queries)
            span_k = keys[slots].float().repeat_interleave(group, dim=1)
            span_v = values[slots].float().repeat_interleave(group, dim=1)
            scores = torch.einsum("qhd,khd->hqk", q[rows].float(), span_k) * scale
            if soft_cap is not None:
                scores = soft_cap * torch.tanh(scores / soft_cap)
            scores.masked_fill_(~visible(span, window, q.device), float("-inf"))
            mixed = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), span_v)
            out[rows] = mixed.to(q.dtype)
        return out.flatten(1)


def _slots(span: SequenceSpan, device: torch.device) -> Tensor:
    if span.first_slot is None:
        assert span.slots is not None
        return span.slots
    return torch.arange(span.first_slot, span.first_slot + span.context_len, device=device)
