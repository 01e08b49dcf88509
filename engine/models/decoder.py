"""The decoder of the Llama form: Llama, Mistral, Qwen2 and Qwen3 by their `ModelConfig`.

Inference only: weights are plain tensors, projections of one input are merged, the residual is
updated in place. All sequences of a step lie flat, one after the other; `attention` knows where
each begins. To be called under `torch.inference_mode()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from engine.models.config import ModelConfig
from engine.models.linear import Embedding, Projection
from engine.models.norm import rms_norm
from engine.models.rope import RotaryTable, rotate_
from engine.models.weights import Weights

if TYPE_CHECKING:
    from engine.kernels.attention import Attention


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Weights of one layer. `qkv` holds the rows of all query heads, then keys, then values;
    `gate_up` those of the gate, then of the up projection. `qk_norm`
    [num_heads + num_kv_heads, head_dim] is the norm of each query and key head, or None."""

    input_norm: Tensor
    qkv: Projection
    qk_norm: Tensor | None
    output: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection


class Decoder:
    """A causal language model. Its weights never change; one thread runs it at a time."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding: Embedding,
        layers: tuple[DecoderLayer, ...],
        final_norm: Tensor,
        head: Projection,
        rotary: RotaryTable,
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.layers = layers
        self.final_norm = final_norm
        self.head = head  # shares the embedding's memory when they are tied
        self.rotary = rotary
        self._scale = config.head_dim**-0.5

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights and hidden states."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.device

    def forward(self, input_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Hidden states [T, hidden] after the final norm, for T tokens of all sequences.

        `input_ids` and `positions` are int64 [T]; positions count from 0 inside each sequence
        and must be below the rotary table's `num_positions`."""
        eps = self.config.rms_norm_eps
        residual = self.embedding(input_ids)
        cos, sin = self.rotary.lookup(positions)
        for index, layer in enumerate(self.layers):
            x = rms_norm(residual, layer.input_norm, eps)
            residual.add_(self._attend(index, layer, x, cos, sin, attention))
            x = rms_norm(residual, layer.mlp_norm, eps)
            gate, up = layer.gate_up(x).chunk(2, dim=-1)
            residual.add_(layer.down(functional.silu(gate).mul_(up)))
        return rms_norm(residual, self.final_norm, eps)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [N, vocab] in float32 of the N rows of `hidden` that are wanted."""
        return self.head(hidden).float()

    def _attend(
        self,
        index: int,
        layer: DecoderLayer,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        attention: Attention,
    ) -> Tensor:
        config = self.config
        num_rotated = config.num_heads + config.num_kv_heads
        heads = layer.qkv(x).view(x.shape[0], -1, config.head_dim)  # [T, q + k + v heads, D]
        rotated, v = heads[:, :num_rotated], heads[:, num_rotated:]
        if layer.qk_norm is not None:
            rotated = rms_norm(rotated, layer.qk_norm, config.rms_norm_eps)
        rotate_(rotated, cos, sin)
        q, k = rotated[:, : config.num_heads], rotated[:, config.num_heads :]
        attended = attention.attend(
            index, q, k, v, scale=self._scale, window=config.layer_windows[index]
        )
        return layer.output(attended)


def build_decoder(config: ModelConfig, weights: Weights, *, max_model_len: int) -> Decoder:
    """Takes the weights out of `weights`. Raises ModelLoadError, naming the tensor."""
    vocab_shape = (config.vocab_size, config.hidden_size)
    embedding = weights.embedding("model.embed_tokens", vocab_shape)
    layers = tuple(_build_layer(config, weights, index) for index in range(config.num_layers))
    final_norm = weights.take("model.norm.weight", (config.hidden_size,))
    if config.tie_word_embeddings:
        weights.skip("lm_head.weight")
        head = embedding.as_projection()
    else:
        head = weights.linear([("lm_head", config.vocab_size)], config.hidden_size)
    weights.finish()
    rotary = RotaryTable(
        config.rope,
        config.head_dim,
        max_model_len,
        dtype=embedding.dtype,
        device=embedding.device,
    )
    return Decoder(
        config,
        embedding=embedding,
        layers=layers,
        final_norm=final_norm,
        head=head,
        rotary=rotary,
    )


def _build_layer(config: ModelConfig, weights: Weights, index: int) -> DecoderLayer:
    prefix = f"model.layers.{index}."
    hidden, inner = config.hidden_size, config.intermediate_size
    q_rows = config.num_heads * config.head_dim
    kv_rows = config.num_kv_heads * config.head_dim

    def linear(parts: dict[str, int], columns: int, *, bias: bool) -> Projection:
        named = [(f"{prefix}{name}", rows) for name, rows in parts.items()]
        return weights.linear(named, columns, bias=bias)

    qkv = {"self_attn.q_proj": q_rows, "self_attn.k_proj": kv_rows, "self_attn.v_proj": kv_rows}
    return DecoderLayer(
        input_norm=weights.take(f"{prefix}input_layernorm.weight", (hidden,)),
        qkv=linear(qkv, hidden, bias=config.qkv_bias),
        qk_norm=_take_qk_norm(config, weights, prefix) if config.qk_norm else None,
        output=linear({"self_attn.o_proj": hidden}, q_rows, bias=config.o_bias),
        mlp_norm=weights.take(f"{prefix}post_attention_layernorm.weight", (hidden,)),
        gate_up=linear(
            {"mlp.gate_proj": inner, "mlp.up_proj": inner}, hidden, bias=config.mlp_bias
        ),
        down=linear({"mlp.down_proj": hidden}, inner, bias=config.mlp_bias),
    )


def _take_qk_norm(config: ModelConfig, weights: Weights, prefix: str) -> Tensor:
    shape = (config.head_dim,)
    query = weights.take(f"{prefix}self_attn.q_norm.weight", shape)
    key = weights.take(f"{prefix}self_attn.k_norm.weight", shape)
    return torch.cat(
        [query.expand(config.num_heads, -1), key.expand(config.num_kv_heads, -1)]
    ).contiguous()
