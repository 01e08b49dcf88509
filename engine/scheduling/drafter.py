"""`Drafter`: guesses the tokens that come next, so that one step can check several. No torch."""

from __future__ import annotations

from typing import Protocol

from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scheduling.sequence import Sequence


class Drafter(Protocol):
    """Asked once per step for each sequence that decodes. Owned by the engine thread."""

    @property
    def max_batch(self) -> int:
        """With more sequences decoding it is not asked. Drafts need the tokens before them, so
        up to there a step is only planned when the one before it is done."""
        ...

    def propose(self, sequence: Sequence, limit: int, num_decoding: int) -> tuple[int, ...]:
        """At most `limit` token ids that may follow the sequence's last one; empty where a guess
        does not pay. `num_decoding` sequences share the step."""
        ...

    def observe(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """Tells how many of the drafts were right."""
        ...

    def observe_step(self, output: SchedulerOutput, seconds: float) -> None:
        """Tells how long a step took, drafts and all."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """The sequence has ended; drops what was kept for it."""
        ...


class NoDrafts:
    """A `Drafter` that never guesses."""

    max_batch = 0

    def propose(self, sequence: Sequence, limit: int, num_decoding: int) -> tuple[int, ...]:
        """Nothing."""
        return ()

    def observe(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        """Nothing to learn."""

    def observe_step(self, output: SchedulerOutput, seconds: float) -> None:
        """Nothing to learn."""

    def forget(self, sequence: Sequence) -> None:
        """Nothing is kept."""
