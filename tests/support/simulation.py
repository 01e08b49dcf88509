"""A simulated machine under the real scheduler: time is a formula, so that ratios between policies
are exact and a test may assert them.

`simulate` plays a trace of `Job`s, each sent at its time or, where `concurrency` is given, as
soon as one of that many clients is free."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scheduling.sequence import Sequence
from engine.types import GenerationRequest, RequestId, SamplingParams


@dataclass(frozen=True, slots=True)
class Device:
    """What a step costs, in seconds. `decode_base_s` is paid once where anything decodes."""

    base_s: float = 0.004
    decode_base_s: float = 0.026
    per_decode_s: float = 0.001
    per_prefill_s: float = 1 / 2400

    def seconds(self, plan: SchedulerOutput) -> float:
        """The time of one step."""
        return (
            self.base_s
            + (self.decode_base_s if plan.num_decode_tokens else 0.0)
            + self.per_decode_s * plan.num_decode_tokens
            + self.per_prefill_s * plan.num_prefill_tokens
        )


TWO_CORES = Device(base_s=0.002, decode_base_s=0.007, per_decode_s=0.0034)
"""One sequence decodes at 80 tokens a second, 16 at 250 in all; prompts at 2400."""


@dataclass(frozen=True, slots=True)
class Job:
    """One request of a trace: its prompt, and the number of tokens after which its answer ends
    (`max_tokens`: what it asked for, if that is more)."""

    name: str
    prompt: tuple[int, ...]
    num_output: int
    at_s: float = 0.0
    user: str = ""
    priority: int = 0
    max_tokens: int | None = None
    same_prompt_as: str | None = None


@dataclass(slots=True)
class Played:
    """How one job went. Times of its tokens are seconds since the trace began."""

    job: Job
    sent_s: float
    token_times_s: list[float] = field(default_factory=list)
    num_cached_tokens: int = 0
    num_preemptions: int = 0

    @property
    def ttft_s(self) -> float:
        return self.token_times_s[0] - self.sent_s

    @property
    def end_s(self) -> float:
        return self.token_times_s[-1]

    @property
    def itl_s(self) -> list[float]:
        return [later - earlier for earlier, later in pairwise(self.token_times_s)]


@dataclass(slots=True)
class Outcome:
    """How a trace went."""

    jobs: dict[str, Played] = field(default_factory=dict)
    num_steps: int = 0
    num_prefilled: int = 0
    num_decoded: int = 0
    num_preemptions: int = 0
    seconds: float = 0.0

    def select(self, prefix: str) -> list[Played]:
        """The jobs whose names begin so."""
        return [played for name, played in self.jobs.items() if name.startswith(prefix)]

    def ttft_s(self, quantile: float = 0.5, prefix: str = "") -> float:
        """A quantile of the time to the first token."""
        return quantile_of([played.ttft_s for played in self.select(prefix)], quantile)

    def itl_s(self, quantile: float = 0.5) -> float:
        """A quantile of the time between tokens, over all jobs."""
        return quantile_of([gap for played in self.jobs.values() for gap in played.itl_s], quantile)

    @property
    def num_output(self) -> int:
        return sum(len(played.token_times_s) for played in self.jobs.values())

    @property
    def output_per_s(self) -> float:
        """Output tokens a second over the whole trace."""
        return self.num_output / self.seconds


def quantile_of(values: list[float], quantile: float) -> float:
    """The value below which that share of `values` lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


class Simulation:
    """A scheduler, its blocks and a clock; every token sampled is the same."""

    def __init__(
        self,
        *,
        device: Device | None = None,
        num_blocks: int = 4096,
        block_size: int = 16,
        limits: SchedulerLimits | None = None,
        enable_prefix_cache: bool = True,
        drafter: Drafter | None = None,
    ) -> None:
        self.device = device or Device()
        self.allocator = BlockAllocator(
            num_blocks, block_size, enable_prefix_cache=enable_prefix_cache
        )
        self.scheduler = Scheduler(limits or SchedulerLimits(), self.allocator, drafter)
        self.outcome = Outcome()
        self.on_step: Callable[[SchedulerOutput], None] | None = None
        self.now_s = 0.0

    def send(self, job: Job) -> None:
        """Queues a job now."""
        request = GenerationRequest(
            RequestId(job.name),
            job.prompt,
            SamplingParams(temperature=0.0, max_tokens=job.max_tokens or job.num_output),
            user=job.user,
            priority=job.priority,
            same_prompt_as=None if job.same_prompt_as is None else RequestId(job.same_prompt_as),
        )
        self.outcome.jobs[job.name] = Played(job, self.now_s)
        self.scheduler.add(Sequence(request, arrival_s=self.now_s))

    def step(self) -> list[Played]:
        """One step; returns the jobs that ended."""
        plan = self.scheduler.schedule(self.now_s)
        assert plan.scheduled, "nothing is scheduled though there is work"
        seconds = self.device.seconds(plan)
        self.now_s += seconds
        outcome = self.outcome
        outcome.num_steps += 1
        outcome.seconds = self.now_s
        outcome.num_prefilled += plan.num_prefill_tokens
        outcome.num_decoded += plan.num_decode_tokens
        outcome.num_preemptions += len(plan.preempted)
        ended = []
        for item in plan.scheduled:
            played = outcome.jobs[item.sequence.request_id]
            # No draft is ever right here: drafts cost time, and nothing else.
            self.scheduler.commit(item, (1,) if item.samples else ())
            if item.samples:
                played.token_times_s.append(self.now_s)
            if item.sequence.num_output_tokens == played.job.num_output:
                played.num_cached_tokens = item.sequence.num_cached_tokens or 0
                played.num_preemptions = item.sequence.num_preemptions
                self.scheduler.finish(item.sequence)
                ended.append(played)
        self.scheduler.observe(plan, seconds)
        if self.on_step is not None:
            self.on_step(plan)
        return ended

    def play(self, jobs: Iterable[Job], *, concurrency: int | None = None) -> Outcome:
        """Plays a trace to its end. With `concurrency` the jobs' own times do not count."""
        pending = list(jobs)
        if concurrency is None:
            pending.sort(key=lambda job: job.at_s)
        pending.reverse()
        num_free = concurrency or 0
        while pending or self.scheduler.has_work:
            if concurrency is None:
                while pending and pending[-1].at_s <= self.now_s:
                    self.send(pending.pop())
            else:
                while pending and num_free:
                    self.send(pending.pop())
                    num_free -= 1
            if self.scheduler.has_work:
                num_free += len(self.step())
            else:
                self.now_s = pending[-1].at_s
        self.scheduler.check()
        return self.outcome


def tokens(kind: int, count: int) -> tuple[int, ...]:
    """`count` token ids that no other `kind` begins with."""
    return tuple(kind * 10_000 + index for index in range(count))


def chat_load(num_jobs: int = 32, num_output: int = 128) -> list[Job]:
    """Chat requests of 345–723 prompt tokens: four shared beginnings of 300 tokens, and a rest of
    their own."""
    return [
        Job(
            f"chat{index}",
            tokens(index % 4, 300) + tokens(100 + index, 45 + (index * 151) % 379),
            num_output,
        )
        for index in range(num_jobs)
    ]


def overload() -> list[Job]:
    """Three requests a second, a tenth of them long: a bit more than the machine can do."""
    random = Random(1)
    jobs: list[Job] = []
    at_s = 0.0
    for index in range(400):
        at_s += random.expovariate(3.0)
        is_long = random.random() < 0.1
        size = random.randrange(2000, 4000) if is_long else random.randrange(100, 700)
        name = f"{'long' if is_long else 'short'}{index}"
        jobs.append(Job(name, tokens(500 + index, size), 40, at_s=at_s))
    return jobs


def mixed_answers(count: int = 64) -> list[Job]:
    """Answers of all lengths, of which nobody says how long they will be."""
    random = Random(5)
    return [
        Job(
            f"j{index}",
            tokens(500 + index, random.randrange(50, 700)),
            min(512, int(random.expovariate(1 / 150)) + 5),
            max_tokens=512,
        )
        for index in range(count)
    ]


def with_users(jobs: Iterable[Job], user: str) -> list[Job]:
    """The same jobs, sent by `user`."""
    return [replace(job, user=user) for job in jobs]
