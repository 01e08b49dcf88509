"""`NativeDecoderStep`: a plain decoder with packed weights, as one native call a step."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.kernels.native.library import NativeEngine, pointer
from engine.kernels.native.structs import Cache, Layer, Model, batch_struct
from engine.models.decoder import Decoder
from engine.models.packed import PackedEmbedding, PackedLinear

if TYPE_CHECKING:
    from engine.execution.flat_step import FlatStep
    from engine.kv.kv_cache import KVCache
    from engine.models.causal_model import CausalModel
    from engine.models.packing import Packing


def native_decoder(model: CausalModel, packing: Packing | None) -> Decoder | None:
    """`model`, if the native step has all that it is made of."""
    if packing is None or not isinstance(model, Decoder) or not model.is_plain:
        return None
    projections: list[object] = [model.head]
    for layer in model.layers:
        projections += [layer.qkv, layer.output, layer.gate_up, layer.down]
    is_packed = isinstance(model.embedding, PackedEmbedding) and all(
        isinstance(projection, PackedLinear) for projection in projections
    )
    can_attend = packing.engine.library.lectern_can_attend(model.config.head_dim)
    return model if is_packed and can_attend else None


class NativeDecoderStep:
    """Owned by the engine thread."""

    def __init__(self, decoder: Decoder, engine: NativeEngine, cache: KVCache) -> None:
        """`decoder` is a `native_decoder`; `cache` is float16 or float32."""
        self._engine = engine
        self._cache = cache
        self._vocab_size = decoder.config.vocab_size
        self._logits = torch.empty(0, self._vocab_size)
        self._kept: list[object] = [decoder]  # what the structures point to
        self._model = self._model_struct(decoder)
        keys, values = cache.layer(0)
        self._num_positions, self._num_slots = decoder.rotary.num_positions, len(keys)
        self._cache_struct = Cache(
            pointer(keys),
            pointer(values),
            keys.numel() * keys.element_size(),
            int(keys.dtype == torch.float16),
            cache.block_size,
        )

    def run(self, step: FlatStep) -> Tensor:
        """Computes the step into the cache; logits [N, vocab] float32 of its sample rows, which
        stay until the next call. Raises IndexError for a token, a position or a slot that is not
        there, and NativeError."""
        _check_range("token id", step.token_ids, self._vocab_size)
        _check_range("position", step.positions, self._num_positions)
        _check_range("slot", step.slots, self._num_slots)
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


def _check_range(name: str, values: NDArray[np.int64], end: int) -> None:
    """The library reads memory by these numbers."""
    if values.min() < 0 or values.max() >= end:
        raise IndexError(f"a {name} is outside 0 to {end - 1}")
