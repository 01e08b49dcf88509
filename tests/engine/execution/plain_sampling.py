"""Sampling written out token by token, from the definitions: what the vectorized code is tested
against."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import torch

from engine.execution.logit_rows import HEAD_DEPTH
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.types import GenerationRequest, RequestId, SamplingParams

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def make_item(
    params: SamplingParams,
    *,
    name: str = "r",
    prompt: Sequence[int] = (0, 1, 2),
    continued: Sequence[int] = (),
    output: Sequence[int] = (),
    drafts: Sequence[int] = (),
    forced: Sequence[int] = (),
    seed: int = 5,
) -> ScheduledSequence:
    """A sequence that samples behind its last token and behind each of its drafts."""
    request = GenerationRequest(
        RequestId(name),
        tuple(prompt),
        params,
        continued_token_ids=tuple(continued),
        forced_token_ids=tuple(forced),
    )
    sequence = EngineSequence(request, arrival_s=0.0, seed=seed)
    sequence.token_ids += output
    start = sequence.num_tokens - 1
    return ScheduledSequence(sequence, start, 1 + len(drafts), True, tuple(drafts))


def adjusted(
    logits: Sequence[float],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    eos_token_ids: Sequence[int] = (),
) -> list[float]:
    """Repetition, frequency and presence penalty, bias, min_tokens."""
    counts = Counter(output)
    bias = dict(params.logit_bias)
    found = []
    for token_id, value in enumerate(logits):
        if token_id in prompt or token_id in counts:
            value = (
                value / params.repetition_penalty
                if value > 0
                else value * params.repetition_penalty
            )
        value -= params.frequency_penalty * counts[token_id]
        value -= params.presence_penalty if token_id in counts else 0.0
        value += bias.get(token_id, 0.0)
        if len(output) < params.min_tokens and (
            token_id in params.stop_token_ids
            or (token_id in eos_token_ids and not params.ignore_eos)
        ):
            value = -math.inf
        found.append(value)
    return found


def kept_tokens(logits: Sequence[float], params: SamplingParams) -> dict[int, float]:
    """What the filters leave, with (logit - largest) / temperature. Equally likely tokens are
    kept or dropped together."""
    largest = max(logits)
    scaled = {i: (value - largest) / params.temperature for i, value in enumerate(logits)}
    order = sorted(scaled, key=lambda i: -scaled[i])
    if params.top_k:
        kth = scaled[order[min(params.top_k, len(order)) - 1]]
        order = [i for i in order if scaled[i] >= kth]
    total = math.fsum(math.exp(scaled[i]) for i in order)
    mass, last = 0.0, order[0]
    for i in order:
        if mass >= params.top_p * total and params.top_p < 1.0:
            break
        mass += math.exp(scaled[i])
        last = i
    order = [i for i in order if scaled[i] >= scaled[last]]
    return {i: scaled[i] for i in order if math.exp(scaled[i]) >= params.min_p}


def distribution(logits: Sequence[float], params: SamplingParams) -> list[float]:
    """The probability of each token."""
    kept = kept_tokens(logits, params)
    total = math.fsum(math.exp(value) for value in kept.values())
    return [math.exp(kept[i]) / total if i in kept else 0.0 for i in range(len(logits))]


def draw(logits: Sequence[float], params: SamplingParams, seed: int, position: int) -> int:
    """Gumbel-max over the head and, as one candidate, the tail; within the tail if that wins."""
    key = _mix(_mix(seed) + position * _GOLDEN)
    kept = kept_tokens(logits, params)
    head = [i for i in kept if kept[i] > -HEAD_DEPTH]
    tail = [i for i in kept if kept[i] <= -HEAD_DEPTH]
    scores = {i: kept[i] + noise(key, i) for i in head}
    mass = math.fsum(math.exp(kept[i]) for i in tail)
    if mass > 0.0 and math.log(mass) + noise(key, -1) > max(scores.values()):
        scores = {i: kept[i] + noise(key, i) for i in tail}
    return max(scores, key=lambda i: scores[i])


def noise(key: int, token_id: int) -> float:
    """Standard Gumbel noise of a token under a key."""
    bits = _mix((token_id * _GOLDEN + key) & _MASK)
    return -math.log(-math.log(((bits >> 12) + 0.5) * 2.0**-52))


def check_draws(token_ids: Sequence[int], probs: Sequence[float]) -> None:
    """Pearson's chi-squared test. The draws of a test are fixed by their seeds: it passes always
    or never."""
    counts = torch.bincount(torch.tensor(token_ids), minlength=len(probs)).double()
    expected = torch.tensor(probs, dtype=torch.float64) * len(token_ids)
    assert counts[expected == 0.0].sum() == 0
    common = expected >= 5.0
    rest = ~common & (expected > 0.0)
    cells = [(counts[common], expected[common])]
    if float(expected[rest].sum()) >= 5.0:
        cells.append((counts[rest].sum()[None], expected[rest].sum()[None]))
    chi2 = sum(float(((seen - want) ** 2 / want).sum()) for seen, want in cells)
    freedom = max(sum(len(seen) for seen, _ in cells) - 1, 1)
    # The 99.99 % point, by Wilson and Hilferty's approximation.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3
    assert chi2 < limit


def _mix(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
