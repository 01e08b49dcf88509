"""`Candidates`: sequences with prompts to compute, to be taken most urgent first."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from engine.scheduling.fair_shares import FairShares
from engine.scheduling.queues import Urgency, urgency
from engine.scheduling.sequence import Sequence, SequenceStatus


class Candidates:
    """One step's, a heap for each user: what is charged to a user while the step is made moves all
    of the user's at once. Lives for one call of `Scheduler.schedule`."""

    def __init__(self, works: Iterable[tuple[Sequence, int]], shares: FairShares) -> None:
        """`works`: sequences, each with the tokens that it has to compute."""
        self._shares = shares
        self._level = shares.level()
        self._heaps: dict[str, list[tuple[Urgency, int, Sequence]]] = {}
        for index, (sequence, work) in enumerate(works):
            heap = self._heaps.setdefault(sequence.request.user, [])
            heap.append((urgency(sequence, work), index, sequence))
        for heap in self._heaps.values():
            heapify(heap)

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def pop(self) -> Sequence:
        """Takes out the most urgent one; there must be one."""
        user = (
            min(self._heaps, key=self._urgency) if len(self._heaps) > 1 else next(iter(self._heaps))
        )
        heap = self._heaps[user]
        _, _, sequence = heappop(heap)
        if not heap:
            del self._heaps[user]
        return sequence

    def drop_waiting(self) -> None:
        """Nobody is admitted any more: keeps those that run."""
        for user, heap in list(self._heaps.items()):
            started = [entry for entry in heap if entry[2].status is not SequenceStatus.WAITING]
            heapify(started)
            if started:
                self._heaps[user] = started
            else:
                del self._heaps[user]

    def _urgency(self, user: str) -> tuple[Urgency, int]:
        """That of the user's most urgent one, debt counted as work."""
        (priority, is_new, tag, arrival_s), index, _ = self._heaps[user][0]
        debt = self._shares.debt(user, self._level)
        return (priority, is_new, tag + debt, arrival_s), index
