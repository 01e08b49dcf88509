"""`build_decoder`: a decoder out of weights, with everything that its family does differently."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.config import ModelConfig
from engine.models.decoder import Decoder, DecoderLayer
from engine.models.feed_forward import ACTIVATIONS, FeedForward, MixtureOfExperts
from engine.models.linear import Embedding, Projection
from engine.models.norm import rms_norm
from engine.models.rope import RotaryTable
from engine.models.weights import Weights


@dataclass(frozen=True, slots=True)
class NormedProjection:
    """A projection whose result is normed."""

    projection: Projection
    norm: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out]"""
        return rms_norm(self.projection(x), self.norm, self.eps)


@dataclass(frozen=True, slots=True)
class SoftCappedProjection:
    """A projection whose results are kept within ±`cap`, smoothly."""

    projection: Projection
    cap: float

    def __call__(self, x: Tensor) -> Tensor:
        """[T, in] → [T, out] in float32"""
        return self.projection(x).float().div_(self.cap).tanh_().mul_(self.cap)


@dataclass(frozen=True, slots=True)
class ScaledEmbedding:
    """An embedding whose rows are multiplied with `scale` when they are looked up."""

    embedding: Embedding
    scale: float

    def __call__(self, token_ids: Tensor) -> Tensor:
        """int64 [T] → [T, hidden], a new tensor"""
        return self.embedding(token_ids).mul_(self.scale)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what is looked up."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where the table is."""
        return self.embedding.device

    def as_projection(self) -> Projection:
        """The table itself, not scaled, as a tied output head."""
        return self.embedding.as_projection()


def build_decoder(config: ModelConfig, weights: Weights, *, max_model_len: int) -> Decoder:
    """Takes the weights out of `weights`. Raises ModelLoadError, naming the tensor."""
    builder = _Builder(config, weights)
    embedding = weights.embedding("model.embed_tokens", (config.vocab_size, config.hidden_size))
    layers = tuple(builder.layer(index) for index in range(config.num_layers))
    final_norm = builder.norm("model.norm", config.hidden_size)
    if config.tie_word_embeddings:
        weights.skip("lm_head.weight")
        head = embedding.as_projection()
    else:
        head = weights.linear([("lm_head", config.vocab_size)], config.hidden_size)
    weights.finish()
    if config.embedding_scale is not None:
        # The factor itself is rounded to the dtype, as the models were trained.
        scale = torch.tensor(config.embedding_scale, dtype=embedding.dtype)
        embedding = ScaledEmbedding(embedding, float(scale))
    if config.logits_soft_cap is not None:
        head = SoftCappedProjection(head, config.logits_soft_cap)
    rotaries = tuple(
        RotaryTable(
            rope,
            config.head_dim,
            max_model_len,
            dtype=embedding.dtype,
            device=embedding.device,
        )
        for rope in builder.ropes
    )
    return Decoder(
        config,
        embedding=embedding,
        layers=layers,
        final_norm=final_norm,
        head=head,
        rotaries=rotaries,
    )


class _Builder:
    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self._config = config
        self._weights = weights
        others = {rope for rope in config.layer_ropes if rope not in (None, config.rope)}
        self.ropes = (config.rope, *(rope for rope in others if rope is not None))

    def layer(self, index: int) -> DecoderLayer:
        config, prefix = self._config, f"model.layers.{index}."
        hidden = config.hidden_size
        q_rows = config.num_heads * config.head_dim
        kv_rows = config.num_kv_heads * config.head_dim
        qkv = {"q_proj": q_rows, "k_proj": kv_rows, "v_proj": kv_rows}
        rope = config.layer_ropes[index]
        mlp_norm = "pre_feedforward_layernorm" if config.post_norms else "post_attention_layernorm"
        return DecoderLayer(
            input_norm=self.norm(f"{prefix}input_layernorm", hidden),
            qkv=self._linear(f"{prefix}self_attn.", qkv, hidden, bias=config.qkv_bias),
            qk_norm=self._qk_norm(f"{prefix}self_attn.") if config.qk_norm else None,
            output=self._normed(
                self._linear(f"{prefix}self_attn.", {"o_proj": hidden}, q_rows, bias=config.o_bias),
                f"{prefix}post_attention_layernorm",
            ),
            mlp_norm=self.norm(f"{prefix}{mlp_norm}", hidden),
            mlp=self._mlp(index, prefix),
            rope=None if rope is None else self.ropes.index(rope),
            attention=self._attention(index),
        )

    def norm(self, name: str, size: int) -> Tensor:
        weight = self._weights.take(f"{name}.weight", (size,))
        offset = self._config.norm_offset
        # In float32, so that the sum is not rounded (and see `rms_norm`).
        return weight.float() + offset if offset else weight

    def _normed(self, projection: Projection, norm: str) -> Projection:
        if not self._config.post_norms:
            return projection
        weight = self.norm(norm, self._config.hidden_size)
        return NormedProjection(projection, weight, self._config.rms_norm_eps)

    def _linear(
        self, prefix: str, parts: Mapping[str, int], columns: int, *, bias: bool
    ) -> Projection:
        named = [(f"{prefix}{name}", rows) for name, rows in parts.items()]
        return self._weights.linear(named, columns, bias=bias)

    def _qk_norm(self, prefix: str) -> Tensor:
        config = self._config
        query = self.norm(f"{prefix}q_norm", config.head_dim)
        key = self.norm(f"{prefix}k_norm", config.head_dim)
        return torch.cat(
            [query.expand(config.num_heads, -1), key.expand(config.num_kv_heads, -1)]
        ).contiguous()

    def _attention(self, index: int) -> dict[str, object]:
        config = self._config
        options: dict[str, object] = {
            "scale": config.attention_scale,
            "window": config.layer_windows[index],
        }
        if config.attention_soft_cap is not None:
            options["soft_cap"] = config.attention_soft_cap
        return options

    def _mlp(self, index: int, prefix: str) -> FeedForward | MixtureOfExperts:
        experts = self._config.experts
        if experts is not None and experts.is_sparse[index]:
            return self._mixture(f"{prefix}mlp.")
        return self._feed_forward(
            f"{prefix}mlp.",
            self._config.intermediate_size,
            post_norm=f"{prefix}post_feedforward_layernorm",
        )

    def _mixture(self, prefix: str) -> MixtureOfExperts:
        experts, hidden = self._config.experts, self._config.hidden_size
        assert experts is not None
        shared, shared_gate = None, None
        if experts.shared_intermediate_size is not None:
            shared = self._feed_forward(f"{prefix}shared_expert.", experts.shared_intermediate_size)
            shared_gate = self._weights.take(f"{prefix}shared_expert_gate.weight", (1, hidden))
        return MixtureOfExperts(
            router=self._weights.take(f"{prefix}gate.weight", (experts.num_experts, hidden)),
            experts=tuple(
                self._feed_forward(f"{prefix}experts.{number}.", experts.intermediate_size)
                for number in range(experts.num_experts)
            ),
            num_chosen=experts.num_chosen,
            normalizes=experts.normalizes,
            shared=shared,
            shared_gate=shared_gate,
        )

    def _feed_forward(
        self, prefix: str, inner: int, *, post_norm: str | None = None
    ) -> FeedForward:
        hidden, bias = self._config.hidden_size, self._config.mlp_bias
        gate_up = self._linear(prefix, {"gate_proj": inner, "up_proj": inner}, hidden, bias=bias)
        down = self._linear(prefix, {"down_proj": hidden}, inner, bias=bias)
        if post_norm is not None:
            down = self._normed(down, post_norm)
        return FeedForward(gate_up, down, ACTIVATIONS[self._config.activation])
