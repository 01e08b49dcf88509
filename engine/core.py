"""`EngineCore`: the synchronous engine. Requests in, one list of outputs out per step."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from engine.execution.runner import ModelRunner, Sample
from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter, NoDrafts
from engine.scheduling.scheduler import Scheduler, SchedulerLimits
from engine.scheduling.scheduler_output import ScheduledSequence
from engine.scheduling.sequence import Sequence, SequenceStatus
from engine.text.detokenizer import Detokenizer
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


class EngineCore:
    """Owns all state of all requests. Owned by the engine thread; knows no asyncio, no socket.

    Every request that `add` took gets exactly one output with `finish`, by whatever path."""

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
        self._detokenizers: dict[RequestId, Detokenizer] = {}
        self._counters = dict.fromkeys(
            (
                "num_steps",
                "num_finished",
                "num_aborted",
                "prompt_tokens",
                "cached_tokens",
                "generated_tokens",
                "drafted_tokens",
                "accepted_tokens",
            ),
            0,
        )
        self._last_step_s = 0.0

    @property
    def has_work(self) -> bool:
        """Whether `step` would do anything."""
        return self._scheduler.has_work

    def add(self, request: GenerationRequest) -> None:
        """Takes a request that `AsyncEngine` has checked."""
        seed = request.params.seed
        sequence = Sequence(
            request,
            arrival_s=self._clock(),
            seed=secrets.randbits(64) if seed is None else seed % 2**64,
        )
        detokenizer = Detokenizer(self._tokenizer.token_bytes, request.params.stop)
        detokenizer.prime(request.continued_token_ids, request.continued_text)
        self._sequences[request.request_id] = sequence
        self._detokenizers[request.request_id] = detokenizer
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

    def step(self) -> list[RequestOutput]:
        """Expire, schedule, execute, commit: what is new for whom."""
        started_s = self._clock()
        outputs = self._expire(started_s)
        plan = self._scheduler.schedule(started_s)
        if not plan.scheduled:
            return outputs
        result = self._runner.execute(plan)
        now_s = self._clock()
        samples = iter(result.samples)
        for item in plan.scheduled:
            sample = next(samples) if item.samples else None
            failure = result.failures.get(item.sequence.request_id)
            if failure is not None:
                detail = FinishDetail(FinishType.ERROR)
                outputs.append(self._finish(item.sequence, detail, message=failure))
            else:
                outputs.append(self._commit(item, sample, now_s))
        self._last_step_s = now_s - started_s
        self._counters["num_steps"] += 1
        self._scheduler.observe(plan, self._last_step_s)
        self._drafter.observe_step(plan, self._last_step_s)
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
            **self._counters,
        )

    def check(self) -> None:
        """Raises BlockPoolError unless every block is accounted for."""
        self._scheduler.check()

    def _commit(
        self, item: ScheduledSequence, sample: Sample | None, now_s: float
    ) -> RequestOutput:
        sequence = item.sequence
        request_id = sequence.request_id
        was_prefill = sequence.status is SequenceStatus.PREFILL
        token_ids, detail, text = self._read_all(sequence, sample.token_ids if sample else ())
        self._scheduler.commit(item, token_ids)
        progress = None
        if was_prefill:
            progress = Progress(
                min(sequence.num_computed_tokens, sequence.num_prompt_tokens),
                sequence.num_prompt_tokens,
                sequence.num_cached_tokens or 0,
            )
        if sample is None:
            return RequestOutput(request_id, progress=progress)
        logprobs = sample.logprobs[: len(token_ids)]
        self._counters["generated_tokens"] += len(token_ids)
        self._counters["drafted_tokens"] += len(item.draft_token_ids)
        self._counters["accepted_tokens"] += len(token_ids) - 1
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s
        output = RequestOutput(request_id, text, token_ids, progress, logprobs=logprobs)
        return output if detail is None else output.merge(self._finish(sequence, detail))

    def _read_all(
        self, sequence: Sequence, token_ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], FinishDetail | None, str]:
        """`token_ids` as far as the sequence goes, how they end it, if they do, and their text."""
        text = ""
        for count, token_id in enumerate(token_ids, 1):
            detail, piece = self._read(sequence, token_id, count)
            text += piece
            if detail is not None:
                return token_ids[:count], detail, text
        return token_ids, None, text

    def _read(
        self, sequence: Sequence, token_id: int, count: int
    ) -> tuple[FinishDetail | None, str]:
        """What a sampled token means, the `count`-th new one: how it ends the sequence, if it
        does, and its text."""
        params = sequence.request.params
        if token_id in params.stop_token_ids:
            return FinishDetail(FinishType.STOP_TOKEN, token_id), ""
        if token_id in self._tokenizer.eos_token_ids and not params.ignore_eos:
            return FinishDetail(FinishType.EOS), ""
        num_answer_tokens = sequence.num_tokens + count - len(sequence.request.prompt_token_ids)
        text, matched = self._detokenizers[sequence.request_id].push(
            token_id, may_stop=num_answer_tokens > params.min_tokens
        )
        if matched is not None:
            return FinishDetail(FinishType.STOP_STRING, matched), text
        num_output_tokens = sequence.num_output_tokens + count
        num_tokens = sequence.num_tokens + count
        if params.max_tokens is not None and num_output_tokens >= params.max_tokens:
            return FinishDetail(FinishType.MAX_TOKENS), text
        if num_tokens >= self._max_model_len:
            return FinishDetail(FinishType.CONTEXT_WINDOW), text
        if num_tokens >= self._allocator.capacity_tokens:
            return FinishDetail(FinishType.KV_CAPACITY), text
        return None, text

    def _expire(self, now_s: float) -> list[RequestOutput]:
        expired = [
            sequence
            for sequence in self._sequences.values()
            if sequence.request.deadline_s is not None and now_s >= sequence.request.deadline_s
        ]
        return [self._finish(sequence, FinishDetail(FinishType.DEADLINE)) for sequence in expired]

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
        detokenizer = self._detokenizers.pop(request_id)
        is_held = detail.type is FinishType.STOP_STRING or (
            sequence.request.may_continue and detail.type.leaves_room
        )
        text = "" if is_held else detokenizer.flush()
        self._scheduler.finish(sequence)
        self._runner.forget(request_id)
        cached = sequence.num_cached_tokens or 0
        counters = self._counters
        counters["num_finished"] += 1
        counters["num_aborted"] += detail.type.reason == "abort"
        counters["prompt_tokens"] += sequence.num_prompt_tokens
        counters["cached_tokens"] += cached
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
