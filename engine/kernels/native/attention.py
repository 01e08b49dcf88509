"""`NativeAttention`: the native library's attention for models that run on torch on a CPU."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.kernels.attention import AttentionLayout
from engine.kernels.fused import FusedAttention
from engine.kernels.layout import build_layout
from engine.kernels.native.library import NativeEngine, pointer
from engine.kernels.native.structs import CacheView, batch_struct

if TYPE_CHECKING:
    from engine.execution.flat_step import FlatStep
    from engine.kv.kv_cache import KVCache


def can_attend(library: ctypes.CDLL, cache: KVCache) -> bool:
    """Whether the native kernels read such a cache for a model on torch."""
    keys, _ = cache.layer(0)
    return (
        keys.device.type == "cpu"
        and keys.dtype == torch.float32
        and bool(library.lectern_can_attend(keys.shape[-1]))
    )


class NativeAttention:
    """`Attention` in one native call a layer, over the block tables as they are. Made for each
    step, used by the thread that owns `engine`. Layers with a soft cap go to `FusedAttention`."""

    def __init__(self, engine: NativeEngine, cache: KVCache, step: FlatStep) -> None:
        self._engine = engine
        self._cache = cache
        self._step = step
        self._batch = batch_struct(step)
        self._fused: FusedAttention | None = None

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
        if soft_cap is not None:
            return self._on_torch().attend(
                layer, q, k, v, scale=scale, window=window, soft_cap=soft_cap
            )
        keys, values = self._cache.layer(layer)
        view = CacheView(
            pointer(keys), pointer(values), 0, k.shape[1], k.shape[2], self._cache.block_size
        )
        return self._engine.attend(
            view,
            self._batch,
            _flat_heads(q),
            _flat_heads(k),
            _flat_heads(v),
            scale=scale,
            window=window or 0,
        )

    def _on_torch(self) -> FusedAttention:
        if self._fused is None:
            block_size = self._cache.block_size
            layout: AttentionLayout = build_layout(self._step, block_size, torch.device("cpu"))
            self._fused = FusedAttention(self._cache, layout)
        return self._fused


def _flat_heads(heads: Tensor) -> Tensor:
    """[T, heads, head_dim] with each token's heads one behind the other."""
    is_flat = heads.stride(2) == 1 and heads.stride(1) == heads.shape[2]
    return heads if is_flat else heads.contiguous()
