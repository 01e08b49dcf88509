"""`FlatStep`: a scheduled step as flat arrays, all sequences one behind the other. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FlatStep:
    """T tokens of S sequences (spans).

    `token_ids`, `positions` and `slots` [T] say what each token is, where it stands in its
    sequence, and where its keys and values are written. Span i has the rows
    [query_starts[i], query_starts[i] + num_queries[i]), which stand at the end of a context of
    `context_lens[i]` tokens; its blocks begin at `blocks[block_starts[i]]` (int32). `sample_rows`
    [N] are the rows whose logits are needed: for each of `sampling` in order, the row of its last
    real token and those of its drafts."""

    token_ids: Ints
    positions: Ints
    slots: Ints
    query_starts: Ints
    num_queries: Ints
    context_lens: Ints
    block_starts: Ints
    blocks: NDArray[np.int32]
    sample_rows: Ints
    sampling: tuple[ScheduledSequence, ...]


def flatten(plan: SchedulerOutput, block_size: int) -> FlatStep:
    """Lays the plan out."""
    token_ids: list[int] = []
    blocks: list[int] = []
    sample_rows: list[int] = []
    sampling: list[ScheduledSequence] = []
    block_starts: list[int] = []
    for item in plan.scheduled:
        token_ids += item.token_ids
        block_starts.append(len(blocks))
        blocks += item.sequence.table.blocks
        if item.samples:
            sample_rows += range(len(token_ids) - 1 - len(item.draft_token_ids), len(token_ids))
            sampling.append(item)
    starts = _ints([item.start for item in plan.scheduled])
    num_queries = _ints([item.num_tokens for item in plan.scheduled])
    ends = np.cumsum(num_queries)
    query_starts = ends - num_queries
    first_blocks = _ints(block_starts)
    table = np.array(blocks, dtype=np.int32)
    # Rows count on over all spans; positions begin at `start` in each.
    positions = np.arange(len(token_ids)) + np.repeat(starts - query_starts, num_queries)
    owners = np.repeat(first_blocks, num_queries) + positions // block_size
    slots = table[owners].astype(np.int64) * block_size + positions % block_size
    return FlatStep(
        _ints(token_ids),
        positions,
        slots,
        query_starts,
        num_queries,
        starts + num_queries,
        first_blocks,
        table,
        _ints(sample_rows),
        tuple(sampling),
    )


def _ints(values: list[Any]) -> Ints:
    return np.array(values, dtype=np.int64)
