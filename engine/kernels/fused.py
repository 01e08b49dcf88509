"""Paged attention by torch's fused attention, on a CPU or any other device: on views of the cache
where a sequence's blocks lie in one run, and on gathered keys otherwise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.kernels.attention import AttentionLayout, SequenceSpan, visible
from engine.kv.kv_cache import KVCache


class FusedAttention:
    """`Attention` sequence by sequence. The query heads that share a key head are packed as
    further query rows, so that keys and values are read once and never repeated in memory."""

    def __init__(self, cache: KVCache, layout: AttentionLayout) -> None:
        self._cache = cache
        self._layout = layout
        self._masks: dict[tuple[int, int | None, int], Tensor | None] = {}

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
        keys.index_copy_(0, self._layout.slot_mapping, k)
        values.index_copy_(0, self._layout.slot_mapping, v)
        num_kv_heads, head_dim = k.shape[1], k.shape[2]
        group = q.shape[1] // num_kv_heads
        out = torch.empty_like(q)
        for index, span in enumerate(self._layout.spans):
            if span.first_slot is None:
                assert span.slots is not None
                # `index_select` copies whole rows: four times as fast as indexing here.
                span_k = keys.index_select(0, span.slots)
                span_v = values.index_select(0, span.slots)
            else:
                run = slice(span.first_slot, span.first_slot + span.context_len)
                span_k, span_v = keys[run], values[run]
            rows = slice(span.query_start, span.query_start + span.num_queries)
            # [num_queries, kv, group, d] → [1, kv, group * num_queries, d]
            packed = q[rows].view(span.num_queries, num_kv_heads, group, head_dim)
            packed = packed.permute(1, 2, 0, 3).reshape(1, num_kv_heads, -1, head_dim)
            mask = self._mask(index, span, window, group)
            span_k, span_v = span_k.transpose(0, 1)[None], span_v.transpose(0, 1)[None]
            if soft_cap is None:
                mixed = scaled_dot_product_attention(
                    packed, span_k, span_v, attn_mask=mask, scale=scale
                )
            else:
                mixed = _soft_capped_attention(packed, span_k, span_v, mask, scale, soft_cap)
            mixed = mixed.view(num_kv_heads, group, span.num_queries, head_dim)
            out[rows] = mixed.permute(2, 0, 1, 3).reshape(span.num_queries, -1, head_dim)
        return out.flatten(1)

    def _mask(
        self, index: int, span: SequenceSpan, window: int | None, group: int
    ) -> Tensor | None:
        """[group * num_queries, context_len] bool, the same for all layers of a step; None where
        every query sees every key."""
        if span.num_queries == 1 and (window is None or span.context_len <= window):
            return None
        key = (index, window, group)
        if key not in self._masks:
            mask = visible(span, window, self._layout.slot_mapping.device)
            self._masks[key] = mask.repeat(group, 1)
        return self._masks[key]


def _soft_capped_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, soft_cap: float
) -> Tensor:
    """The same with capped scores, which torch's attention does not have; softmax in float32."""
    scores = (q @ k.transpose(-1, -2)).float().mul_(scale / soft_cap).tanh_().mul_(soft_cap)
    if mask is not None:
        scores.masked_fill_(~mask, float("-inf"))
    return scores.softmax(dim=-1).to(v.dtype) @ v
