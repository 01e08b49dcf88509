"""`StepRows`: a scheduled step as rows, one a token, for the GPU. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.scheduling.scheduler_output import ScheduledSequence

Ints = NDArray[np.int32]

UNKNOWN_TOKEN = -1
"""For `token_ids`: the token that the step before has sampled, which is only on the GPU yet."""

MAX_ROW_CHUNK = 16
"""Tokens of one sequence that are computed as rows on their own, each reading the context again.
Longer chunks go through the prefill kernel, which reads it once for a tile of rows."""


class Chunk(NamedTuple):
    """`num_rows` rows of one request from `first_row` on, at positions from `first_position`."""

    first_row: int
    num_rows: int
    slot: int
    first_position: int


@dataclass(frozen=True, slots=True)
class StepRows:
    """R rows as int32 [R]: `slots`, `positions`, and `token_ids`, which may be `UNKNOWN_TOKEN`.
    The first `num_single` rows attend each on its own; the others lie in `chunks`, one behind the
    other. `sample_rows` [N] are the rows behind which the step's sampling sequences sample, in
    the plan's order."""

    slots: Ints
    positions: Ints
    token_ids: Ints
    sample_rows: Ints
    num_single: int
    chunks: tuple[Chunk, ...]

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.slots)


def lay_out(
    scheduled: Sequence[ScheduledSequence], slots: Sequence[int], max_single: int
) -> StepRows:
    """The rows of `scheduled`, whose requests hold `slots`. Sequences with up to `MAX_ROW_CHUNK`
    tokens come first, as single rows, while there are at most `max_single` of these."""
    num_plain = _num_plain(scheduled)
    row_slots = list(slots[:num_plain])
    positions = [item.start for item in scheduled[:num_plain]]
    token_ids = [
        UNKNOWN_TOKEN if item.is_pending else item.sequence.token_ids[item.start]
        for item in scheduled[:num_plain]
    ]
    last_rows = list(range(num_plain))
    later: list[int] = []
    for index in range(num_plain, len(scheduled)):
        item = scheduled[index]
        last_rows.append(0)
        if item.num_tokens > MAX_ROW_CHUNK or len(row_slots) + item.num_tokens > max_single:
            later.append(index)
            continue
        row_slots += [slots[index]] * item.num_tokens
        positions += range(item.start, item.start + item.num_tokens)
        token_ids += _token_ids(item)
        last_rows[index] = len(row_slots) - 1
    num_single = len(row_slots)
    chunks: list[Chunk] = []
    for index in later:
        item = scheduled[index]
        chunks.append(Chunk(len(row_slots), item.num_tokens, slots[index], item.start))
        row_slots += [slots[index]] * item.num_tokens
        positions += range(item.start, item.start + item.num_tokens)
        token_ids += _token_ids(item)
        last_rows[index] = len(row_slots) - 1
    return StepRows(
        _ints(row_slots),
        _ints(positions),
        _ints(token_ids),
        _ints([row for row, item in zip(last_rows, scheduled, strict=True) if item.samples]),
        num_single,
        tuple(chunks),
    )


def _num_plain(scheduled: Sequence[ScheduledSequence]) -> int:
    """The leading sequences that have one token each: all decodes."""
    for index, item in enumerate(scheduled):
        if item.num_tokens != 1:
            return index
    return len(scheduled)


def _token_ids(item: ScheduledSequence) -> list[int]:
    end = item.start + item.num_tokens
    known = item.sequence.token_ids[item.start : end]
    return known + [UNKNOWN_TOKEN] * (item.num_tokens - len(known))


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int32)
