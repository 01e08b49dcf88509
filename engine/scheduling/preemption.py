"""Who gives blocks back when running sequences cannot grow, or a user has nothing at all."""

from __future__ import annotations

from collections.abc import Collection

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.fair_shares import FairShares
from engine.scheduling.sequence import Sequence


def seniority(sequence: Sequence) -> tuple[int, float]:
    """Sort key: the most urgent priority first, then the earliest arrival."""
    return (sequence.request.priority, sequence.arrival_s)


def choose_victim(
    running: Collection[Sequence], allocator: BlockAllocator, shares: FairShares
) -> Sequence:
    """Who makes room for growth: a sequence of the least urgent priority, rather not a user's only
    one, that loses the least work and frees at least one block; never the most senior one, which
    fits alone: no sequence is allowed more tokens than the cache holds. So one sequence always
    advances."""
    senior = min(running, key=seniority)
    candidates = [sequence for sequence in running if sequence is not senior]
    frees = [seq for seq in candidates if allocator.num_exclusive_blocks(seq) > 0]
    return min(
        frees or candidates,
        key=lambda seq: (
            -seq.request.priority,
            shares.num_running(seq.request.user) == 1,
            seq.num_computed_tokens,
            -seq.arrival_s,
        ),
    )


def choose_givers(
    running: Collection[Sequence], starved: Sequence, shares: FairShares
) -> list[Sequence]:
    """Who could make room for `starved`, of whose user nothing runs: all but one of each user's
    sequences, unless more urgent. First those of the user who has the most, and of these the one
    that loses the least work."""
    givers: list[Sequence] = []
    keeping: set[str] = set()
    for sequence in sorted(running, key=lambda seq: -seq.num_computed_tokens):
        user = sequence.request.user
        if user in keeping and sequence.request.priority >= starved.request.priority:
            givers.append(sequence)
        keeping.add(user)
    givers.sort(
        key=lambda seq: (
            -shares.num_running(seq.request.user),
            seq.num_computed_tokens,
            -seq.arrival_s,
        )
    )
    return givers
