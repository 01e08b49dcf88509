"""`ModelRunner`: the seam between the scheduler's plan and whatever computes it. No torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from engine.scheduling.scheduler_output import SchedulerOutput
from engine.types import RequestId, TokenLogprobs


class Sample(msgspec.Struct, frozen=True, gc=False):
    """What one sequence got in a step: the drafts that were right, in order, and one token more.
    `logprobs` has one entry a token where the request asked for them, else none."""

    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """`samples[i]` belongs to the i-th scheduled sequence that samples, one that has ended since
    included. `failures` names requests that cannot go on, with a sentence for people; their
    samples are not used."""

    samples: list[Sample]
    failures: dict[RequestId, str] = field(default_factory=dict)


class LaunchedStep(Protocol):
    """A step that is being computed."""

    def wait(self) -> StepResult:
        """Blocks until the step's tokens are here. To be called once."""
        ...


class ModelRunner(Protocol):
    """Computes steps. Owned by the engine thread."""

    @property
    def depth(self) -> int:
        """Steps that may be in flight: launched and not waited for. 1: a step is waited for
        before the next is scheduled. 2: the next is scheduled and launched while tokens that it
        needs are not known here; the runner takes them from the step before."""
        ...

    def launch(self, plan: SchedulerOutput) -> LaunchedStep:
        """Begins one step: forward for all scheduled tokens, then sampling. Steps are computed
        in the order in which they were launched, and waited for in that order. An exception, here
        or in `wait`, means that the engine cannot go on."""
        ...

    def forget(self, request_id: RequestId) -> None:
        """The request has ended; drops what was kept for it. Steps in flight may still compute
        it, in vain: their samples are waited for all the same, and ignored. Once for each request,
        also for those that no step ever had; the id may come again with another request."""
        ...

    def idle(self) -> bool:
        """There is no work: time for what was put off. Returns whether there may be more of it;
        short enough (some 100 ms) that a new request can wait for it."""
        ...


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A `LaunchedStep` that was computed when it was launched."""

    result: StepResult

    def wait(self) -> StepResult:
        """At once."""
        return self.result


class SynchronousRunner(ABC):
    """A `ModelRunner` that computes a step when it is launched."""

    depth = 1

    @abstractmethod
    def execute(self, plan: SchedulerOutput) -> StepResult:
        """Computes one step, as `ModelRunner.launch` says."""

    @abstractmethod
    def forget(self, request_id: RequestId) -> None:
        """See `ModelRunner.forget`."""

    def launch(self, plan: SchedulerOutput) -> DoneStep:
        """See `ModelRunner.launch`."""
        return DoneStep(self.execute(plan))

    def idle(self) -> bool:
        """Nothing is put off."""
        return False
