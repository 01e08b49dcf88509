"""`NativeDecoderStep`: a plain decoder with packed weights, as one native call a step."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from engine.kernels.native.attention import MAX_HEAD_DIM
from engine.kernels.native.library import NativeEngine, pointer
from engine.kernels.native.structs import Cache, Layer, Model, batch_struct
from engine.models.generic import GenericModel
from engine.models.packed import PackedEmbedding, PackedLinear

if TYPE_CHECKING:
    from engine.execution.flat_step import FlatStep
    from engine.kv.kv_cache import KVCache
    from engine.models.decoder import Decoder


def can_run(decoder: Decoder | GenericModel) -> TypeGuard[Decoder]:
    """Whether the native step has all that `decoder` is made of."""
    if not decoder.is_plain or isinstance(decoder, GenericModel):
        return False
    projections: list[object] = [decoder.head]
    for layer in decoder.layers:
        projections += [layer.qkv, layer.output, layer.gate_up, layer.down]
    return (
        isinstance(decoder.embedding, PackedEmbedding)
        and all(isinstance(projection, PackedLinear) for projection in projections)
        and decoder.config.head_dim % 8 == 0
        and decoder.config.head_dim <= MAX_HEAD_DIM
    )


class NativeDecoderStep:
    """Owned by the engine thread."""

    def __init__(self, decoder: Decoder, engine: NativeEngine, cache: KVCache) -> None:
        """`can_run(decoder)` holds; `cache` is float16 or float32."""
        self._engine = engine
        self._cache = cache
        self._vocab_size = decoder.config.vocab_size
        self._logits = torch.empty(0, self._vocab_size)
        self._kept: list[object] = [decoder]  # what the structures point to
        self._model = self._model_struct(decoder)
        keys, values = cache.layer(0)
        self._cache_struct = Cache(
            pointer(keys),
            pointer(values),
            keys.numel() * keys.element_size(),
            int(keys.dtype == torch.float16),
            cache.block_size,
        )

    def run(self, step: FlatStep) -> Tensor:
        """Computes the step into the cache; logits [N, vocab] float32 of its sample rows, which
        stay until the next call."""
        num_samples = len(step.sample_rows)
        if num_samples > len(self._logits):
            # Kept: fresh memory for each step would be mapped page by page.
            self._logits = torch.empty(num_samples, self._vocab_size)
        logits = self._logits[:num_samples]
        self._engine.step(self._model, self._cache_struct, batch_struct(step), logits)
        return logits

    def _model_struct(self, decoder: Decoder) -> Model:
        config, rotary = decoder.config, decoder.rotary
        layers = (Layer * config.num_layers)()
        for struct, layer in zip(layers, decoder.layers, strict=True):
            struct.input_norm = self._floats(layer.input_norm)
            struct.mlp_norm = self._floats(layer.mlp_norm)
            if layer.qk_norm is not None:
                struct.qk_norm = self._floats(layer.qk_norm)
            struct.qkv = _packed(layer.qkv)
            struct.output = _packed(layer.output)
            struct.gate_up = _packed(layer.gate_up)
            struct.down = _packed(layer.down)
            struct.window = layer.attention.get("window") or 0
        self._kept.append(layers)
        embedding = decoder.embedding
        assert isinstance(embedding, PackedEmbedding)
        return Model(
            config.num_layers,
            config.hidden_size,
            config.intermediate_size,
            config.num_heads,
            config.num_kv_heads,
            config.head_dim,
            rotary.cos.shape[-1] * 2,
            config.rms_norm_eps,
            decoder.layers[0].attention["scale"],
            self._floats(rotary.cos),
            self._floats(rotary.sin),
            self._floats(decoder.final_norm),
            embedding.table.struct,
            _packed(decoder.head),
            ctypes.cast(layers, ctypes.POINTER(Layer)),
        )

    def _floats(self, tensor: Tensor) -> ctypes.c_void_p:
        tensor = tensor.float().contiguous()
        self._kept.append(tensor)
        return pointer(tensor)


def _packed(projection: object) -> Any:
    assert isinstance(projection, PackedLinear)
    return projection.struct
