"""`Sampler`: logits to token ids.

Random choice is the Gumbel-max rule with noise keyed by (seed, position, token id): the draw for
a position depends on nothing else, so a seeded request gives the same answer whoever shares its
batch, after preemption, and in a continuation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.execution.runner import Sample
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.types import RequestId, SamplingParams

GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: the distribution has one point in floating point."""

_NUM_FIRST = 1024
"""Tokens that usually hold all of top-p; the whole row is sorted only where they do not."""
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


class Sampler:
    """Stateless; filters in the order temperature, top-k, top-p, min-p, each on what the one
    before it left."""

    def sample(self, logits: Tensor, items: tuple[ScheduledSequence, ...]) -> list[Sample]:
        """`logits` [N, vocab] float32 has, for each of `items` in order, one row behind its last
        real token and one behind each of its drafts.

        A draw depends on nothing but the sequence, so the drafts that equal what is drawn in
        their place are what would have been drawn without them: speculation changes no answer."""
        greedy: list[int] = logits.argmax(dim=-1).tolist()
        samples, first = [], 0
        for item in items:
            sequence = item.sequence
            params = sequence.request.params
            drawn: list[int] = []
            for index, draft in enumerate((*item.draft_token_ids, None)):
                row = first + index
                if params.temperature < GREEDY_BELOW:
                    drawn.append(greedy[row])
                else:
                    position = sequence.num_tokens + index
                    drawn.append(sample_row(logits[row], params, sequence.seed, position))
                if drawn[-1] != draft:
                    break
            samples.append(Sample(tuple(drawn)))
            first += 1 + len(item.draft_token_ids)
        return samples

    def forget(self, request_id: RequestId) -> None:
        """Nothing is kept per request."""


def sample_row(logits: Tensor, params: SamplingParams, seed: int, position: int) -> int:
    """Draws one token from `logits` [vocab]. `position`: index of the token that is drawn."""
    # The largest is 0, so that no temperature makes inf - inf.
    scaled = (logits.double() - logits.max()) / params.temperature
    values, token_ids = _filtered(scaled, params)
    noise = gumbel(seed, position, token_ids)
    return int(token_ids[(values + noise).argmax()])


def gumbel(seed: int, position: int, token_ids: Tensor) -> Tensor:
    """Standard Gumbel noise, float64, for each id (int64), by the SplitMix64 finalizer (Steele,
    Lea and Flood, 2014) over seed, position and id."""
    key = _mix_int(_mix_int(seed) + position * _GOLDEN)
    bits = token_ids * _signed(_GOLDEN) + _signed(key)
    bits = (bits ^ _shift_right(bits, 30)) * _signed(_MIX_1)
    bits = (bits ^ _shift_right(bits, 27)) * _signed(_MIX_2)
    bits = bits ^ _shift_right(bits, 31)
    # 52 bits to the open interval (0, 1), exactly: neither logarithm is infinite.
    uniform = (_shift_right(bits, 12).double() + 0.5) * 2.0**-52
    return -torch.log(-torch.log(uniform))


def _filtered(scaled: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """What top-k, top-p and min-p leave: logits and their token ids."""
    vocab_size = scaled.shape[0]
    if params.top_k == 0 and params.top_p >= 1.0:
        if params.min_p == 0.0:
            return scaled, torch.arange(vocab_size, device=scaled.device)
        kept = torch.nonzero(scaled.exp() >= params.min_p)[:, 0]
        return scaled[kept], kept
    if params.top_k:
        values, token_ids = scaled.topk(min(params.top_k, vocab_size))
        total = values.exp().sum()
    else:
        values, token_ids = scaled.topk(min(_NUM_FIRST, vocab_size))
        total = scaled.exp().sum()
        if float(values.exp().sum() / total) < params.top_p:
            values, token_ids = scaled.sort(descending=True)
    probs = values.exp() / total
    before = probs.cumsum(0) - probs
    keep = before < params.top_p
    keep[0] = True
    keep &= probs >= params.min_p * probs[0]
    return values[keep], token_ids[keep]


def _shift_right(bits: Tensor, count: int) -> Tensor:
    """Logical shift of int64."""
    return (bits >> count) & ((1 << (64 - count)) - 1)


def _signed(value: int) -> int:
    """The int64 with the same bits as `value` modulo 2**64."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _mix_int(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)
