"""`FusedDecoder`: a plain decoder's forward pass in few, fused kernels on a GPU.

The same weights and the same arithmetic as `Decoder`, whose code is the reference; what lies
between two matrix products is one kernel instead of several, and keys and values go from the
merged projection straight into the paged cache. Where a product takes its input in 8-bit floats,
that kernel writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from torch import Tensor

from engine.kernels.triton.norm import embed_rms_norm, rms_norm
from engine.kernels.triton.rotary import rotate_and_store
from engine.kernels.triton.skinny_linear import MAX_ROWS, skinny_gate_up, skinny_linear
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.fp8 import Fp8Linear
from engine.models.fused_projections import (
    FusedNorm,
    GatedProjection,
    NormedProjection,
    fuse_gate,
    fuse_norm,
)
from engine.models.linear import Linear, PlainEmbedding, Projection

if TYPE_CHECKING:
    from engine.kernels.triton.paged_attention import PagedAttention
    from engine.kernels.triton.row_inputs import RowInputs
    from engine.kv.kv_cache import KVCache


SMALL_HIDDEN = 1024
"""Up to this hidden size a few rows are streamed like one."""


@dataclass(frozen=True, slots=True)
class _FusedLayer:
    """What a layer does behind its attention. `end` is what the sum behind the layer goes into: the
    next layer's merged projection, or nothing but the last norm."""

    output: Projection
    gate_up: NormedProjection
    down: GatedProjection
    end: NormedProjection


@dataclass(frozen=True, slots=True)
class _StreamedWeight:
    """What `skinny_linear` and `skinny_gate_up` take of a product; `scales` where it is of 8-bit
    floats."""

    weight: Tensor
    scales: Tensor | None
    bias: Tensor | None

    @staticmethod
    def of(projection: Projection) -> _StreamedWeight | None:
        """None: its weights are kept in a way that is not streamed."""
        if isinstance(projection, Linear):
            return _StreamedWeight(projection.weight, None, projection.bias)
        if isinstance(projection, Fp8Linear):
            return _StreamedWeight(projection.codes, projection.scales, projection.bias)
        return None


@dataclass(frozen=True, slots=True)
class _StreamedLayer:
    qkv: _StreamedWeight
    output: _StreamedWeight
    gate_up: _StreamedWeight
    down: _StreamedWeight

    @staticmethod
    def of(layer: DecoderLayer) -> _StreamedLayer | None:
        """None where a product is not streamed, or has a bias before the gate."""
        qkv, output = _StreamedWeight.of(layer.qkv), _StreamedWeight.of(layer.output)
        gate_up, down = _StreamedWeight.of(layer.gate_up), _StreamedWeight.of(layer.down)
        if qkv is None or output is None or gate_up is None or down is None:
            return None
        return None if gate_up.bias is not None else _StreamedLayer(qkv, output, gate_up, down)


class FusedDecoder:
    """The forward pass of `decoder`, which `can_fuse`. Its weights never change; one thread runs
    it at a time."""

    def __init__(self, decoder: Decoder, cache: KVCache) -> None:
        self._decoder = decoder
        self._cache = cache
        embedding = decoder.embedding
        assert isinstance(embedding, PlainEmbedding)
        self._table = embedding.weight
        num_heads, eps = decoder.config.num_heads, decoder.config.rms_norm_eps
        self._q_width = num_heads * decoder.config.head_dim
        streamed = [_StreamedLayer.of(layer) for layer in decoder.layers]
        self._can_stream = None not in streamed
        self._streamed = [layer for layer in streamed if layer is not None]
        self._head_norms = [
            (None, None) if layer.qk_norm is None else (layer.qk_norm[0], layer.qk_norm[num_heads])
            for layer in decoder.layers
        ]
        self._first, *ends = [fuse_norm(one.input_norm, eps, one.qkv) for one in decoder.layers]
        ends.append(FusedNorm(decoder.final_norm, eps))
        self._layers = [
            _FusedLayer(
                layer.output,
                fuse_norm(layer.mlp_norm, eps, layer.gate_up),
                fuse_gate(layer.down),
                end,
            )
            for layer, end in zip(decoder.layers, ends, strict=True)
        ]

    def forward(
        self, rows: RowInputs, attention: PagedAttention, wanted: Tensor | None = None
    ) -> Tensor:
        """Hidden states [R, hidden] of `rows` after the final norm, or, of them, those of the rows
        `wanted` (int32 [N]): what only others would need behind the last attention is left out,
        nearly a whole layer where chunks of prompts are computed."""
        if self._streams(rows.input_ids.shape[0]):
            hidden = self._forward_streaming(rows, attention)
            return hidden if wanted is None else hidden.index_select(0, wanted)
        residual, x = self._first.embed(rows.input_ids, self._table)
        mixed = residual.new_empty((residual.shape[0], self._q_width))
        for index, layer in enumerate(self._layers):
            self._attend(index, x, mixed, rows, attention)
            if wanted is not None and index == len(self._layers) - 1:
                mixed, residual = mixed.index_select(0, wanted), residual.index_select(0, wanted)
            x = layer.gate_up.add(layer.output(mixed), residual)
            x = layer.end.add(layer.down(x), residual)
        return x

    def _streams(self, num_rows: int) -> bool:
        """Whether products with so few rows are a stream of weights, for which general matrix
        products are slow to start (scripts/bench_gpu_linear.py)."""
        return self._can_stream and (
            num_rows == 1
            or (num_rows <= MAX_ROWS and self._decoder.config.hidden_size <= SMALL_HIDDEN)
        )

    def _forward_streaming(self, rows: RowInputs, attention: PagedAttention) -> Tensor:
        """The same with norms, gate and residual inside the products."""
        decoder = self._decoder
        eps = decoder.config.rms_norm_eps
        residual, _ = embed_rms_norm(rows.input_ids, self._table, decoder.layers[0].input_norm, eps)
        mixed = residual.new_empty((residual.shape[0], self._q_width))
        for index, (layer, streamed) in enumerate(zip(decoder.layers, self._streamed, strict=True)):
            one = streamed.qkv
            qkv = skinny_linear(
                residual,
                one.weight,
                one.bias,
                scales=one.scales,
                norm_weight=layer.input_norm,
                eps=eps,
                pdl=True,
            )
            self._attend(index, qkv, mixed, rows, attention)
            one = streamed.output
            skinny_linear(
                mixed, one.weight, one.bias, scales=one.scales, residual=residual, pdl=True
            )
            one = streamed.gate_up
            x = skinny_gate_up(
                residual,
                one.weight,
                scales=one.scales,
                norm_weight=layer.mlp_norm,
                eps=eps,
                pdl=True,
            )
            one = streamed.down
            skinny_linear(x, one.weight, one.bias, scales=one.scales, residual=residual, pdl=True)
        return rms_norm(residual, decoder.final_norm, eps)

    def _attend(
        self,
        index: int,
        qkv: Tensor,
        mixed: Tensor,
        rows: RowInputs,
        attention: PagedAttention,
    ) -> None:
        """Writes the rows' keys and values of a layer, and what they attend to into `mixed`."""
        config, rotary = self._decoder.config, self._decoder.rotary
        q_norm, k_norm = self._head_norms[index]
        keys, values = self._cache.layer(index)
        rotate_and_store(
            qkv,
            rows.positions,
            rows.cache_slots,
            rotary.cos,
            rotary.sin,
            keys,
            values,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            q_norm=q_norm,
            k_norm=k_norm,
            eps=config.rms_norm_eps,
            pdl=True,
        )
        q = qkv[:, : self._q_width].view(qkv.shape[0], config.num_heads, config.head_dim)
        attention.attend_written(index, q, mixed, **self._decoder.layers[index].attention)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [N, vocab] of N rows of `hidden`, in the model's dtype."""
        return self._decoder.head(hidden)


def can_fuse(model: object) -> TypeGuard[Decoder]:
    """Whether `FusedDecoder` computes `model`: a plain decoder whose layers all rotate."""
    return (
        isinstance(model, Decoder)
        and model.is_plain
        and isinstance(model.embedding, PlainEmbedding)
        and all(layer.rope is not None for layer in model.layers)
    )
