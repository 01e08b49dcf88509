"""`WaitingQueue`: sequences that have no blocks yet, in the order they should be admitted."""

from __future__ import annotations

from collections.abc import Iterator

from engine.scheduling.sequence import Sequence
from engine.types import RequestId

AGEING_TOKENS_PER_S = 200.0
"""A waiting second weighs as much as this many tokens of a shorter prompt. So shorter prompts
go first, but a prompt of n tokens waits behind newer ones for at most n / 200 seconds."""


def urgency(sequence: Sequence, now_s: float) -> tuple[int, bool, float, float]:
    """Sort key, smallest first: priority, then those that had run before (somebody watches a
    stream that stands still), then work left less age, then arrival."""
    age_s = now_s - sequence.arrival_s
    work = sequence.num_remaining_tokens - AGEING_TOKENS_PER_S * age_s
    is_new = sequence.num_preemptions == 0
    return (sequence.request.priority, is_new, work, sequence.arrival_s)


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

    def by_urgency(self, now_s: float) -> list[Sequence]:
        """All of them, most urgent first."""
        return sorted(self._sequences.values(), key=lambda sequence: urgency(sequence, now_s))
