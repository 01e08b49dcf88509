"""`ModelRunner`: the seam between the scheduler's plan and whatever computes it. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import RequestId, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Sample:
    """What one sequence got in a step: the drafts that were right, in order, and one token more.
    `logprobs` has one entry a token where the request asked for them, else none."""

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """`samples[i]` belongs to the i-th scheduled sequence that samples. `failures` names
    requests that cannot go on, with a sentence for people; their samples are not used."""

    samples: list[Sample]
    failures: dict[RequestId, str] = field(default_factory=dict)


class ModelRunner(Protocol):
    """Computes steps. Owned by the engine thread."""

    def execute(self, plan: SchedulerOutput) -> StepResult:
        """Runs one step: forward for all scheduled tokens, then sampling. An exception means
        that the engine cannot go on."""
        ...

    def forget(self, request_id: RequestId) -> None:
        """The request has ended; drops what was kept for it."""
        ...
