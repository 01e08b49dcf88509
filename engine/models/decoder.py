"""`Decoder`: a causal language model of the Llama form or one of its variants, by `ModelConfig`.

Inference only: weights are plain tensors, projections of one input are merged, the residual is
updated in place. All sequences of a step lie flat, one after the other; `attention` knows where
each begins. To be called under `torch.inference_mode()`.

How a family differs is settled when the decoder is built (`decoder_builder`): by what stands
behind a layer's projections and its MLP, and by which angles it uses. No step asks for it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from engine.models.config import ModelConfig
from engine.models.feed_forward import FeedForward, MixtureOfExperts
from engine.models.linear import Embedding, Projection
from engine.models.norm import rms_norm
from engine.models.rope import RotaryTable, rotate_

if TYPE_CHECKING:
    from engine.kernels.attention import Attention


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """Weights of one layer. `qkv` holds the rows of all query heads, then keys, then values.
    `qk_norm` [num_heads + num_kv_heads, head_dim] is the norm of each query and key head, or
    None. `rope` is which of the decoder's `rotaries` turns queries and keys, None for no one.
    `attention` are keywords for `Attention.attend`."""

    input_norm: Tensor
    qkv: Projection
    qk_norm: Tensor | None
    output: Projection
    mlp_norm: Tensor
    mlp: FeedForward | MixtureOfExperts
    rope: int | None
    attention: Mapping[str, Any]

    @property
    def gate_up(self) -> Projection:
        """Gate and up projection of a layer whose MLP is not a mixture."""
        assert isinstance(self.mlp, FeedForward)
        return self.mlp.gate_up

    @property
    def down(self) -> Projection:
        """Down projection of a layer whose MLP is not a mixture."""
        assert isinstance(self.mlp, FeedForward)
        return self.mlp.down


class Decoder:
    """A causal language model. Its weights never change; one thread runs it at a time.

    Where `is_plain`, all of it can be read off `config`, `embedding`, the layers' `input_norm`,
    `qkv`, `qk_norm`, `output`, `mlp_norm`, `gate_up` and `down`, `final_norm`, `head` and
    `rotary`: what that form is stands at `ModelConfig.is_plain`."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        embedding: Embedding,
        layers: tuple[DecoderLayer, ...],
        final_norm: Tensor,
        head: Projection,
        rotaries: tuple[RotaryTable, ...],
    ) -> None:
        self.config = config
        self.embedding = embedding
        self.layers = layers
        self.final_norm = final_norm
        self.head = head  # shares the embedding's memory when they are tied
        self.rotaries = rotaries

    @property
    def is_plain(self) -> bool:
        """Whether the decoder is of the plain Llama form: see `ModelConfig.is_plain`."""
        return self.config.is_plain

    @property
    def rotary(self) -> RotaryTable:
        """The only table of a plain decoder; else that of the layers with full attention."""
        return self.rotaries[0]

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
        and must be below the rotary tables' `num_positions`."""
        eps = self.config.rms_norm_eps
        residual = self.embedding(input_ids)
        angles = [table.lookup(positions) for table in self.rotaries]
        for index, layer in enumerate(self.layers):
            x = rms_norm(residual, layer.input_norm, eps)
            turn = None if layer.rope is None else angles[layer.rope]
            residual.add_(self._attend(index, layer, x, turn, attention))
            residual.add_(layer.mlp(rms_norm(residual, layer.mlp_norm, eps)))
        return rms_norm(residual, self.final_norm, eps)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [N, vocab] in float32 of the N rows of `hidden` that are wanted."""
        return self.head(hidden).float()

    def _attend(
        self,
        index: int,
        layer: DecoderLayer,
        x: Tensor,
        turn: tuple[Tensor, Tensor] | None,
        attention: Attention,
    ) -> Tensor:
        config = self.config
        num_rotated = config.num_heads + config.num_kv_heads
        heads = layer.qkv(x).view(x.shape[0], -1, config.head_dim)  # [T, q + k + v heads, D]
        rotated, v = heads[:, :num_rotated], heads[:, num_rotated:]
        if layer.qk_norm is not None:
            rotated = rms_norm(rotated, layer.qk_norm, config.rms_norm_eps)
        if turn is not None:
            rotate_(rotated, *turn)
        q, k = rotated[:, : config.num_heads], rotated[:, config.num_heads :]
        return layer.output(attention.attend(index, q, k, v, **layer.attention))
