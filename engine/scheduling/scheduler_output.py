"""What the scheduler decided for one step, as a value."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from engine.kv.block_pool import BlockId
from engine.scheduling.sequence import Sequence


class ScheduledSequence(msgspec.Struct, frozen=True, gc=False):
    """Compute tokens [start, start + num_tokens) of `sequence`; sample behind the last of them
    if `samples`.

    `draft_token_ids` are guesses that follow the sequence's last token. They are the last of the
    `num_tokens`, and the runner samples behind the last real token and behind each draft as far
    as the drafts before it turn out right (see `Sample`).

    `is_pending`: the one token to compute is still being sampled by a step in flight, so nobody
    knows it here. The runner takes what it samples for the sequence there. Such a token has no
    draft behind it. Never where the runner has one step in flight at a time."""

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool
    draft_token_ids: tuple[int, ...] = ()
    is_pending: bool = False

    @property
    def token_ids(self) -> list[int]:
        """Those of the `num_tokens` token ids to compute that are known: all of them, or, while
        the token is pending, none."""
        return [
            *self.sequence.token_ids[self.start : self.start + self.num_tokens],
            *self.draft_token_ids,
        ]


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step. `num_decodes` decodes come first in `scheduled`, then prefill chunks. `copies` are
    pairs of blocks (source, destination), to be copied whole before anything is computed; no
    block is source and destination at once. `preempted` gave their blocks back since the step
    before; some may be among `scheduled` again."""

    scheduled: tuple[ScheduledSequence, ...] = ()
    preempted: tuple[Sequence, ...] = ()
    num_decode_tokens: int = 0
    num_prefill_tokens: int = 0
    copies: tuple[tuple[BlockId, BlockId], ...] = ()
    num_decodes: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return self.num_decode_tokens + self.num_prefill_tokens
