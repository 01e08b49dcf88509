"""`Sampler`: logits to token ids.

Random choice is the Gumbel-max rule with noise keyed by (seed, position, token id): the draw for
a position depends on nothing else than the logits, so a seeded request gives the same answer
whoever shares its batch, after preemption, with speculation, and in a continuation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from engine.execution.keyed_noise import draw_key
from engine.execution.logprobs import token_logprobs
from engine.execution.penalties import LogitAdjuster
from engine.execution.random_choice import choose_tokens
from engine.execution.runner import Sample
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.types import RequestId, SamplingParams, TokenLogprobs

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: the distribution has one point in floating point."""


class Sampler:
    """Vectorized over the rows of a step. Owned by the engine thread.

    `eos_token_ids`: what `min_tokens` holds back besides a request's own stop tokens."""

    def __init__(self, eos_token_ids: Iterable[int] = ()) -> None:
        self._adjuster = LogitAdjuster(eos_token_ids)

    def sample(self, logits: Tensor, items: Sequence[ScheduledSequence]) -> list[Sample]:
        """`logits` [N, vocab] float32 has, for each of `items` in order, one row behind its last
        real token and one behind each of its drafts. They are read only.

        Where a request forces its output, a row's token is the one that it demands. Otherwise
        a draw depends on nothing but the sequence, so the drafts that equal what is drawn in
        their place are what would have been drawn without them: speculation changes no answer.
        NaN and infinite logits raise nothing; what they draw is some token of the vocabulary, and
        `find_failures` names the requests that must not go on with it."""
        drawn = _draw(self._adjuster.adjust(logits, items), items)
        _force(drawn, items)
        accepted: list[tuple[int, ...]] = []
        first = 0
        for item in items:
            drafts = item.draft_token_ids
            count = 1
            while count <= len(drafts) and drawn[first + count - 1] == drafts[count - 1]:
                count += 1
            accepted.append(tuple(drawn[first : first + count]))
            first += 1 + len(drafts)
        return [
            Sample(token_ids, logprobs)
            for token_ids, logprobs in zip(
                accepted, _logprobs(logits, items, accepted), strict=True
            )
        ]

    def forget(self, request_id: RequestId) -> None:
        """Drops what is kept for a request."""
        self._adjuster.forget(request_id)


def is_greedy(params: SamplingParams) -> bool:
    """Whether the likeliest token is always chosen; of several, the one with the lowest id."""
    return params.temperature < GREEDY_BELOW or params.top_k == 1


def _draw(logits: Tensor, items: Sequence[ScheduledSequence]) -> list[int]:
    """A token for each row of `logits`."""
    rows: list[int] = []
    params: list[SamplingParams] = []
    keys: list[int] = []
    first = 0
    for item in items:
        sequence = item.sequence
        num_rows = 1 + len(item.draft_token_ids)
        if not is_greedy(sequence.request.params):
            for index in range(num_rows):
                rows.append(first + index)
                params.append(sequence.request.params)
                keys.append(draw_key(sequence.seed, sequence.num_tokens + index))
        first += num_rows
    if not rows:
        greedy: list[int] = _argmax(logits).tolist()
        return greedy
    row_keys = torch.tensor(keys, dtype=torch.int64, device=logits.device)
    if len(rows) == first:
        chosen: list[int] = choose_tokens(logits, params, row_keys).tolist()
        return chosen
    drawn = _argmax(logits)
    drawn[rows] = choose_tokens(logits[rows], params, row_keys)
    mixed: list[int] = drawn.tolist()
    return mixed


def _force(drawn: list[int], items: Sequence[ScheduledSequence]) -> None:
    """Puts the tokens that requests demand in place of those that were drawn for them."""
    first = 0
    for item in items:
        num_rows = 1 + len(item.draft_token_ids)
        if item.sequence.request.forced_token_ids:
            forced = item.sequence.forced_token_ids[:num_rows]
            drawn[first : first + len(forced)] = forced
        first += num_rows


def _argmax(logits: Tensor) -> Tensor:
    """[N] int64."""
    if logits.device.type == "cpu":
        # Eight times as fast as torch's on one core, where a step of one row takes a few ms.
        return torch.from_numpy(logits.numpy().argmax(axis=1))
    return logits.argmax(dim=1)


def _logprobs(
    logits: Tensor, items: Sequence[ScheduledSequence], accepted: Sequence[tuple[int, ...]]
) -> list[tuple[TokenLogprobs, ...]]:
    """For each item, one entry for each of its tokens if it asks, else none."""
    rows: list[int] = []
    token_ids: list[int] = []
    num_top: list[int] = []
    first = 0
    for item, tokens in zip(items, accepted, strict=True):
        wanted = item.sequence.request.params.logprobs
        if wanted is not None:
            rows += range(first, first + len(tokens))
            token_ids += tokens
            num_top += [wanted] * len(tokens)
        first += 1 + len(item.draft_token_ids)
    if not rows:
        return [()] * len(items)
    found = iter(token_logprobs(logits[rows], token_ids, num_top))
    return [
        tuple(next(found) for _ in tokens)
        if item.sequence.request.params.logprobs is not None
        else ()
        for item, tokens in zip(items, accepted, strict=True)
    ]
