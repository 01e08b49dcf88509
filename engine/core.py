"""`EngineCore`: the synchronous engine. Requests in, one list of outputs out per step."""

from __future__ import annotations

import random
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import msgspec

from engine.answer_reader import AnswerReader
from engine.execution.runner import LaunchedStep, ModelRunner, Sample
from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter, NoDrafts
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence, SequenceStatus
from engine.text.detokenizer import TokenTexts
from engine.text.protocol import Tokenizer
from engine.types import (
    EngineStats,
    Finish,
    FinishDetail,
    FinishType,
    GenerationRequest,
    Progress,
    RequestId,
    RequestOutput,
    Timing,
    Usage,
)

_FINISHED = SequenceStatus.FINISHED


class _Counters(msgspec.Struct):
    """Fields of `EngineStats`."""

    num_steps: int = 0
    num_finished: int = 0
    num_aborted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _StepInFlight:
    plan: SchedulerOutput
    launched: LaunchedStep
    started_s: float


class EngineCore:
    """Owns all state of all requests. Owned by the engine thread; knows no asyncio, no socket.

    Every request that `add` took gets exactly one output with `finish`, by whatever path.

    Where the runner may have two steps in flight, one is planned and launched while the one before
    it is computed: so the device need not wait for Python. Only then is it found that a sequence
    had ended; what the later step computes for it is dropped."""

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        allocator: BlockAllocator,
        limits: SchedulerLimits,
        *,
        max_model_len: int,
        clock: Callable[[], float],
        drafter: Drafter | None = None,
    ) -> None:
        self._runner = runner
        self._tokenizer = tokenizer
        self._allocator = allocator
        self._drafter = drafter or NoDrafts()
        self._scheduler = Scheduler(limits, allocator, self._drafter, max_model_len=max_model_len)
        self._max_model_len = max_model_len
        self._clock = clock
        self._sequences: dict[RequestId, Sequence] = {}
        self._readers: dict[RequestId, AnswerReader] = {}
        self._texts = TokenTexts(tokenizer.token_bytes)
        self._deadlines: list[tuple[float, RequestId]] = []
        """A heap; those that ended stay in it until then, so it holds no more than their ids."""
        self._in_flight: deque[_StepInFlight] = deque()
        """Launched and not waited for, oldest first."""
        # One look at the system's random numbers: each is a system call, under which another
        # thread may take the interpreter.
        self._seeds = random.Random(secrets.randbits(256))
        self._counters = _Counters()
        self._last_done_s = 0.0
        self._last_step_s = 0.0

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return bool(self._in_flight) or self._scheduler.has_work

    @property
    def num_in_flight(self) -> int:
        """Steps that were launched and not waited for."""
        return len(self._in_flight)

    def idle(self) -> bool:
        """There is no work: lets the runner do what it put off. Returns whether there may be more
        of that."""
        return self._runner.idle()

    def add(self, request: GenerationRequest) -> None:
        """Takes a request that `AsyncEngine` has checked."""
        seed = request.params.seed
        sequence = Sequence(
            request,
            arrival_s=self._clock(),
            seed=self._seeds.getrandbits(64) if seed is None else seed % 2**64,
        )
        self._sequences[request.request_id] = sequence
        self._readers[request.request_id] = AnswerReader(
            sequence, self._tokenizer, self._texts, max_model_len=self._max_model_len
        )
        if request.deadline_s is not None:
            heappush(self._deadlines, (request.deadline_s, request.request_id))
        self._scheduler.add(sequence)

    def abort(self, request_id: RequestId, detail: FinishType) -> list[RequestOutput]:
        """Ends a request now; its blocks are free at once. Unknown or ended ids give nothing."""
        sequence = self._sequences.get(request_id)
        return [] if sequence is None else [self._finish(sequence, FinishDetail(detail))]

    def abort_all(self, detail: FinishType, message: str | None = None) -> list[RequestOutput]:
        """Ends every request."""
        return [
            self._finish(sequence, FinishDetail(detail), message=message)
            for sequence in list(self._sequences.values())
        ]

    def step(self, before_wait: Callable[[], None] | None = None) -> list[RequestOutput]:
        """Expire, schedule, launch; then wait for the oldest step in flight and commit it, unless
        another one may be launched before: what is new for whom. `before_wait` is called right
        before the wait: what it does costs the device nothing."""
        started_s = self._clock()
        outputs = self._expire(started_s)
        # Drafts need the tokens before them.
        may_draft = self._runner.depth == 1 or self._scheduler.may_draft
        depth = 1 if may_draft else self._runner.depth
        if len(self._in_flight) >= depth:
            self._complete(outputs, before_wait)
            return outputs
        plan = self._scheduler.schedule(started_s, may_draft=may_draft)
        if plan.scheduled:
            launched = self._runner.launch(plan)
            self._in_flight.append(_StepInFlight(plan, launched, started_s))
        if len(self._in_flight) >= depth or (self._in_flight and not plan.scheduled):
            self._complete(outputs, before_wait)
        return outputs

    def stats(self) -> EngineStats:
        """Gauges and counters as they stand."""
        pool = self._allocator.pool
        return EngineStats(
            num_running=self._scheduler.num_running,
            num_waiting=self._scheduler.num_waiting,
            free_blocks=pool.num_available - pool.num_cached,
            cached_blocks=pool.num_cached,
            used_blocks=pool.num_used,
            total_blocks=pool.num_blocks,
            num_preemptions=self._scheduler.num_preemptions,
            num_forks=self._scheduler.num_forks,
            prefix_lookup_tokens=self._allocator.num_lookup_tokens,
            prefix_hit_tokens=self._allocator.num_hit_tokens,
            last_step_s=self._last_step_s,
            **msgspec.structs.asdict(self._counters),
        )

    def check(self) -> None:
        """Raises BlockPoolError unless every block is accounted for."""
        self._scheduler.check()

    def _complete(
        self, outputs: list[RequestOutput], before_wait: Callable[[], None] | None
    ) -> None:
        """Waits for the oldest step in flight and adds what it brought to `outputs`."""
        step = self._in_flight.popleft()
        if before_wait is not None:
            before_wait()
        result = step.launched.wait()
        now_s = self._clock()
        plan, failures = step.plan, result.failures
        samples = iter(result.samples)
        for index, item in enumerate(plan.scheduled):
            sample = next(samples) if item.samples else None
            sequence = item.sequence
            if sequence.status is _FINISHED:
                continue  # it ended while this step was in flight
            if failures and (message := failures.get(sequence.request_id)) is not None:
                detail = FinishDetail(FinishType.ERROR)
                outputs.append(self._finish(sequence, detail, message=message))
            elif index < plan.num_decodes and sample is not None:
                outputs.append(self._commit_sample(item, sample))
            else:
                outputs.append(self._commit_prefill(item, sample, now_s))
        # With two in flight, a step begins when the one before it is done.
        self._last_step_s = now_s - max(step.started_s, self._last_done_s)
        self._last_done_s = now_s
        self._counters.num_steps += 1
        self._scheduler.observe(plan, self._last_step_s)
        self._drafter.observe_step(plan, self._last_step_s)

    def _commit_sample(self, item: ScheduledSequence, sample: Sample) -> RequestOutput:
        sequence = item.sequence
        request_id = sequence.request_id
        reader = self._readers[request_id]
        token_ids = sample.token_ids
        counters = self._counters
        if not item.draft_token_ids and (text := reader.read_plain(token_ids[0])) is not None:
            self._scheduler.commit(item, token_ids)
            counters.generated_tokens += 1
            return RequestOutput(request_id, text, token_ids, None, None, sample.logprobs)
        token_ids, detail, text = reader.read(token_ids)
        counters.generated_tokens += len(token_ids)
        if not sequence.forced_token_ids:
            counters.drafted_tokens += len(item.draft_token_ids)
            counters.accepted_tokens += len(token_ids) - 1
        self._scheduler.commit(item, token_ids)
        logprobs = sample.logprobs[: len(token_ids)]
        output = RequestOutput(request_id, text, token_ids, logprobs=logprobs)
        return output if detail is None else output.merge(self._finish(sequence, detail))

    def _commit_prefill(
        self, item: ScheduledSequence, sample: Sample | None, now_s: float
    ) -> RequestOutput:
        sequence = item.sequence
        progress = Progress(
            min(item.start + item.num_tokens, sequence.num_prompt_tokens),
            sequence.num_prompt_tokens,
            sequence.num_cached_tokens or 0,
        )
        if sample is None:
            self._scheduler.commit(item, ())
            return RequestOutput(sequence.request_id, progress=progress)
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s
        return RequestOutput(sequence.request_id, progress=progress).merge(
            self._commit_sample(item, sample)
        )

    def _expire(self, now_s: float) -> list[RequestOutput]:
        outputs: list[RequestOutput] = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            deadline_s, request_id = heappop(self._deadlines)
            sequence = self._sequences.get(request_id)
            # The id may have come again with another request.
            if sequence is not None and sequence.request.deadline_s == deadline_s:
                outputs.append(self._finish(sequence, FinishDetail(FinishType.DEADLINE)))
        return outputs

    def _finish(
        self,
        sequence: Sequence,
        detail: FinishDetail,
        *,
        message: str | None = None,
    ) -> RequestOutput:
        """The one way a request ends. The output has the text that was still held back, unless a
        continuation may yet find that it begins a stop string."""
        request_id = sequence.request_id
        del self._sequences[request_id]
        reader = self._readers.pop(request_id)
        is_held = detail.type is FinishType.STOP_STRING or (
            sequence.request.may_continue and detail.type.leaves_room
        )
        text = "" if is_held else reader.flush()
        self._scheduler.finish(sequence)
        self._runner.forget(request_id)
        cached = sequence.num_cached_tokens or 0
        counters = self._counters
        counters.num_finished += 1
        counters.num_aborted += detail.type.reason == "abort"
        counters.prompt_tokens += sequence.num_prompt_tokens
        counters.cached_tokens += cached
        finish = Finish(
            detail,
            Usage(sequence.num_prompt_tokens, sequence.num_output_tokens, cached),
            _timing(sequence, self._clock()),
            message,
        )
        return RequestOutput(request_id, text, finish=finish)


def _timing(sequence: Sequence, now_s: float) -> Timing:
    arrival_s = sequence.arrival_s
    first_scheduled_s, first_token_s = sequence.first_scheduled_s, sequence.first_token_s
    return Timing(
        None if first_scheduled_s is None else first_scheduled_s - arrival_s,
        None if first_token_s is None else first_token_s - arrival_s,
        now_s - arrival_s,
    )
