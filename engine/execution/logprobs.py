"""Log probabilities of sampled tokens, for the rows that ask."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.types import SamplingParams, TokenLogprobs

LOWEST_LOGPROB = -9999.0
"""In place of minus infinity, which JSON cannot say."""


def token_logprobs(
    logits: Tensor, token_ids: Sequence[int], num_top: Sequence[int]
) -> list[TokenLogprobs]:
    """For each row of `logits` [R, vocab] float32, as the model gave them: how likely its token
    of `token_ids` was, and the `num_top` likeliest ones (`SamplingParams.MAX_LOGPROBS` at most)."""
    totals = _totals(logits)
    ids = torch.tensor(token_ids, dtype=torch.int64, device=logits.device)[:, None]
    sampled = _finite(logits.gather(1, ids) - totals)[:, 0].tolist()
    # Always as many: which of several equally likely tokens come first must not hang on company.
    top_values, top_ids = logits.topk(min(SamplingParams.MAX_LOGPROBS, logits.shape[1]), dim=1)
    alternatives = [
        tuple(zip(row_ids[:count], row_values[:count], strict=True))
        for row_ids, row_values, count in zip(
            top_ids.tolist(), _finite(top_values - totals).tolist(), num_top, strict=True
        )
    ]
    return [
        TokenLogprobs(token_id, logprob, top)
        for token_id, logprob, top in zip(token_ids, sampled, alternatives, strict=True)
    ]


def _totals(logits: Tensor) -> Tensor:
    """log(sum(exp)) of rows, [R, 1]. A single row is summed as one of two: torch splits the sum of
    one row between its threads, and the last bits would depend on company."""
    if len(logits) == 1:
        return torch.logsumexp(logits.expand(2, -1), dim=1, keepdim=True)[:1]
    return torch.logsumexp(logits, dim=1, keepdim=True)


def _finite(logprobs: Tensor) -> Tensor:
    # A NaN, too: a row that has one has no probabilities.
    return torch.nan_to_num(logprobs, nan=LOWEST_LOGPROB).clamp(LOWEST_LOGPROB, 0.0)
