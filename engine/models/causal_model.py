"""`CausalModel`: what the engine needs of a model, whoever defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.kernels.attention import Attention


class CausalModel(Protocol):
    """Token ids in, logits out, keys and values in the cache behind `attention`. One thread runs
    it at a time, under `torch.inference_mode()`."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of weights and hidden states."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        ...

    @property
    def is_plain(self) -> bool:
        """Whether this is a `Decoder` of the plain Llama form."""
        ...

    def forward(self, input_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Hidden states [T, hidden] for T tokens of all sequences, flat one after the other;
        `input_ids` and `positions` are int64 [T]."""
        ...

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [N, vocab] in float32 of N rows of `hidden`."""
        ...
