"""8-bit floats as a GPU keeps them, in a decoder that computes in float32 on a CPU.

Weights and their products' inputs, or keys and values, are rounded exactly as with `quantization`
and `kv_cache_dtype` fp8; everything else keeps its precision, so that what is measured is the
rounding alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from torch import Tensor

from engine.kernels.attention import Attention
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.feed_forward import FeedForward
from engine.models.fp8 import Fp8Linear, saturate
from engine.models.linear import Linear, Projection

PARTS = ("weights", "kv")


class RoundedKeysAndValues:
    """`Attention` over keys and values that were rounded to float8."""

    def __init__(self, attention: Attention) -> None:
        self._attention = attention

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        """See `Attention.attend`."""
        k, v = saturate(k).to(k.dtype), saturate(v).to(v.dtype)
        return self._attention.attend(layer, q, k, v, **options)


class EmulatedFp8:
    """Implements `CausalModel`: `decoder` with `parts` (of `PARTS`) in float8."""

    is_plain = False

    def __init__(self, decoder: Decoder, parts: Collection[str]) -> None:
        layers = decoder.layers
        if "weights" in parts:
            layers = tuple(_rounded(layer) for layer in layers)
        self._decoder = Decoder(
            decoder.config,
            embedding=decoder.embedding,
            layers=layers,
            final_norm=decoder.final_norm,
            head=decoder.head,
            rotaries=decoder.rotaries,
        )
        self._rounds_cache = "kv" in parts
        self.dtype, self.device = decoder.dtype, decoder.device

    def forward(self, input_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """See `CausalModel.forward`."""
        if self._rounds_cache:
            attention = RoundedKeysAndValues(attention)
        return self._decoder.forward(input_ids, positions, attention)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """See `CausalModel.compute_logits`."""
        return self._decoder.compute_logits(hidden)


def parse_parts(text: str) -> tuple[str, ...]:
    """`weights`, `kv` or `weights,kv`. Raises ValueError, naming the part."""
    parts = tuple(text.split(","))
    for part in parts:
        if part not in PARTS:
            raise ValueError(f"fp8={text}: {part!r} is none of {', '.join(PARTS)}.")
    return parts


def _rounded(layer: DecoderLayer) -> DecoderLayer:
    mlp = layer.mlp
    if isinstance(mlp, FeedForward):
        mlp = replace(mlp, gate_up=_round(mlp.gate_up), down=_round(mlp.down))
    return replace(layer, qkv=_round(layer.qkv), output=_round(layer.output), mlp=mlp)


def _round(projection: Projection) -> Projection:
    if not isinstance(projection, Linear):
        return projection
    return Fp8Linear(projection.weight, projection.bias)
