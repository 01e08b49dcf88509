"""`Attention`: what a decoder layer asks of the cache, and the step's layout that answers need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from engine.kv.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class SequenceSpan:
    """One sequence's part of a flat step.

    Its queries are rows [query_start, query_start + num_queries); they stand at the end of a
    context of `context_len` tokens, whose slots are `slots` [context_len] int64, or, if
    `first_slot` is not None, the run [first_slot, first_slot + context_len)."""

    query_start: int
    num_queries: int
    context_len: int
    first_slot: int | None
    slots: Tensor | None


@dataclass(frozen=True, slots=True)
class AttentionLayout:
    """`slot_mapping` [T] int64: where each of the step's T new tokens is written."""

    slot_mapping: Tensor
    spans: tuple[SequenceSpan, ...]


class Attention(Protocol):
    """Made once per step, asked once per layer."""

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
        """q [T, num_heads, head_dim], k and v [T, num_kv_heads, head_dim], already normed and
        rotated. Writes k and v into the paged cache, attends causally inside each sequence (to
        the last `window` tokens, itself included, where given) and returns
        [T, num_heads * head_dim]. With `soft_cap` a scaled score s counts as
        soft_cap * tanh(s / soft_cap). Query head h reads key head h // (num_heads / num_kv_heads).
        """
        ...


AttentionKind = Literal["fused", "reference"]


def create_attention(kind: AttentionKind, cache: KVCache, layout: AttentionLayout) -> Attention:
    """The implementation `kind` for one step."""
    if kind == "reference":
        from engine.kernels.reference import ReferenceAttention

        return ReferenceAttention(cache, layout)
    from engine.kernels.fused import FusedAttention

    return FusedAttention(cache, layout)


def visible(span: SequenceSpan, window: int | None, device: torch.device) -> Tensor:
    """[num_queries, context_len] bool: which keys each query may see."""
    keys = torch.arange(span.context_len, device=device)
    first = span.context_len - span.num_queries
    queries = torch.arange(first, span.context_len, device=device)[:, None]
    mask = keys <= queries
    return mask if window is None else mask & (keys > queries - window)
