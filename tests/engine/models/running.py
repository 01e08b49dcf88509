"""Runs a decoder for one sequence, for tests."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.models.causal_model import CausalModel
from tests.engine.models.plain_attention import PlainAttention


@torch.inference_mode()
def logits_of(model: CausalModel, token_ids: list[int]) -> Tensor:
    """[T, vocab]: the logits after each token, from one pass."""
    ids = torch.tensor(token_ids)
    hidden = model.forward(ids, torch.arange(len(token_ids)), PlainAttention())
    return model.compute_logits(hidden)


@torch.inference_mode()
def greedy(
    model: CausalModel, prompt: list[int], num_tokens: int, *, chunk: int = 10**6
) -> list[int]:
    """The most likely continuation, past any EOS; the prompt goes in `chunk` tokens at a time."""
    attention = PlainAttention()
    output: list[int] = []
    pending, position = list(prompt), 0
    while len(output) < num_tokens:
        part, pending = pending[:chunk], pending[chunk:]
        positions = torch.arange(position, position + len(part))
        hidden = model.forward(torch.tensor(part), positions, attention)
        position += len(part)
        if not pending:
            output.append(int(model.compute_logits(hidden[-1:]).argmax()))
            pending = output[-1:]
    return output
