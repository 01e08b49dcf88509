"""What the scheduler decided for one step, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from engine.scheduling.sequence import Sequence


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """Compute tokens [start, start + num_tokens) of `sequence`; sample behind the last of them
    if `samples`."""

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool


@dataclass(frozen=True, slots=True)
class SchedulerOutput:
    """One step. Decodes come first in `scheduled`, then prefill chunks."""

    scheduled: tuple[ScheduledSequence, ...] = ()
    preempted: tuple[Sequence, ...] = ()
    num_decode_tokens: int = 0
    num_prefill_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens computed in this step."""
        return self.num_decode_tokens + self.num_prefill_tokens
