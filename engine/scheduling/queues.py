"""`WaitingQueue`: sequences that have no blocks, and `urgency`: the order they are served in."""

from __future__ import annotations

from collections.abc import Iterator

from engine.scheduling.sequence import Sequence
from engine.types import RequestId

AGEING_SHARE = 0.1
"""A waiting second weighs as much as a tenth of the tokens that the engine computes in a second.
So shorter prompts go first, but a prompt that takes n seconds waits behind newer ones for at most
10 n seconds."""


def urgency(
    sequence: Sequence, work: int, now_s: float, ageing_tokens_per_s: float
) -> tuple[int, bool, float, float]:
    """Sort key, smallest first: priority, then those that had run before (somebody watches a
    stream that stands still), then `work` left (tokens) less age, then arrival."""
    age_s = now_s - sequence.arrival_s
    is_new = sequence.num_preemptions == 0
    left = work - ageing_tokens_per_s * age_s
    return (sequence.request.priority, is_new, left, sequence.arrival_s)


class WaitingQueue:
    """Owned by the engine thread."""

    def __init__(self) -> None:
        self._sequences: dict[RequestId, Sequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences.values())

    def add(self, sequence: Sequence) -> None:
        """Adds a new or preempted sequence."""
        self._sequences[sequence.request_id] = sequence

    def remove(self, sequence: Sequence) -> None:
        """Takes a sequence out; it must be there."""
        del self._sequences[sequence.request_id]
