"""`EngineTrial`: an engine under any history of requests, steps, aborts and failures, with the
engine's invariants checked all along. Property tests and the fuzzer both drive it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from engine.core import EngineCore
from engine.execution.runner import StepResult
from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter, NoDrafts
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.scheduler_output import SchedulerOutput
from engine.scheduling.sequence import SequenceStatus
from engine.text.byte_tokenizer import ByteTokenizer
from engine.types import FinishType, GenerationRequest, RequestId, RequestOutput
from tests.support.engines import (
    CacheRunner,
    Clock,
    Collected,
    PipelinedRunner,
    RandomDrafter,
    collect,
    expected_tokens,
    make_request,
)

PREFIXES = ((), tuple(range(8)), tuple(range(12)), (*tuple(range(8)), 50, 51, 52, 53, 54))


@dataclass(frozen=True, slots=True)
class TrialConfig:
    """Small enough that everything runs short of something. `draft_share` 0: no drafts. `depth`:
    steps that may be in flight."""

    num_blocks: int = 14
    block_size: int = 4
    max_model_len: int = 50
    max_num_seqs: int = 5
    max_num_batched_tokens: int = 16
    min_chunk_tokens: int = 4
    enable_prefix_cache: bool = True
    draft_share: float = 0.0
    draft_max_batch: int = 1 << 30
    step_s: float = 0.001
    depth: int = 1
    seed: int = 0


@dataclass
class FailingRunner(CacheRunner):
    """Fails the requests in `failing` when they are next scheduled, and notes where each request
    began to compute."""

    failing: set[RequestId] = field(default_factory=set)
    first_starts: dict[RequestId, int] = field(default_factory=dict)
    num_copies: int = 0
    num_sampled: int = 0
    num_pending: int = 0

    def execute(self, plan: SchedulerOutput) -> StepResult:
        for item in plan.scheduled:
            self.first_starts.setdefault(item.sequence.request_id, item.start)
        self.num_copies += len(plan.copies)
        result = super().execute(plan)
        self.plans.clear()
        self.num_sampled += sum(len(sample.token_ids) for sample in result.samples)
        failures = {
            item.sequence.request_id: "failed by the test"
            for item in plan.scheduled
            if item.sequence.request_id in self.failing
        }
        return replace(result, failures=failures)


class EngineTrial:
    """One engine and what was asked of it."""

    def __init__(self, config: TrialConfig) -> None:
        self.config = config
        self.clock = Clock()
        self.runner: FailingRunner | PipelinedRunner
        if config.depth == 1:
            self.runner = FailingRunner(
                self.clock, step_s=config.step_s, block_size=config.block_size
            )
        else:
            self.runner = PipelinedRunner(
                self.clock, config.block_size, config.step_s, depth=config.depth
            )
        self.allocator = BlockAllocator(
            config.num_blocks, config.block_size, enable_prefix_cache=config.enable_prefix_cache
        )
        self.drafter: RandomDrafter | None = None
        drafter: Drafter = NoDrafts()
        if config.draft_share:
            self.drafter = RandomDrafter(
                Random(config.seed), config.draft_share, max_batch=config.draft_max_batch
            )
            drafter = self.drafter
        self.core = EngineCore(
            self.runner,
            ByteTokenizer(),
            self.allocator,
            SchedulerLimits(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                min_chunk_tokens=config.min_chunk_tokens,
            ),
            max_model_len=config.max_model_len,
            clock=self.clock,
            drafter=drafter,
        )
        self.requests: dict[str, GenerationRequest] = {}
        self.collected: dict[str, Collected] = {}
        self.num_steps = 0

    @property
    def max_prompt(self) -> int:
        """The longest prompt that the door would let through."""
        return min(self.config.max_model_len, self.allocator.capacity_tokens) - 1

    def submit(
        self,
        prefix: int,
        tail: int,
        *,
        max_tokens: int | None,
        num_choices: int = 1,
        priority: int = 0,
        timeout_steps: float | None = None,
        user: str = "",
        salt: str = "",
        stop: tuple[str, ...] = (),
        leader: str | None = None,
    ) -> None:
        """Sends `num_choices` requests of one prompt; the later ones, and the first one too if
        `leader` is given, say that they have the prompt of another one (for `leader` a lie)."""
        number = len(self.requests)
        prompt = PREFIXES[prefix] + tuple((number * 13 + i) % 90 for i in range(tail))
        prompt = prompt[: self.max_prompt]
        deadline_s = None
        if timeout_steps is not None:
            deadline_s = self.clock.now_s + timeout_steps * self.config.step_s
        for index in range(num_choices):
            name = f"r{number + index}"
            self.requests[name] = make_request(
                name,
                prompt,
                max_tokens=max_tokens,
                priority=priority,
                deadline_s=deadline_s,
                salt=salt,
                stop=stop,
                user=user,
                same_prompt_as=f"r{number}" if index else leader,
            )
            self.core.add(self.requests[name])

    def step(self, count: int = 1) -> None:
        """Up to `count` steps."""
        for _ in range(count):
            if not self.core.has_work:
                return
            self._collect(self.core.step())
            self.num_steps += 1

    def abort(self, name: str) -> None:
        """Ends a request; one that has ended, or never began, is none of the engine's business."""
        outputs = self.core.abort(RequestId(name), FinishType.CANCELLED)
        assert len(outputs) == (name in self.requests and not self._has_ended(name))
        self._collect(outputs)

    def fail(self, name: str) -> None:
        """The request fails when it is next computed."""
        self.runner.failing.add(RequestId(name))

    def check(self) -> None:
        """The invariants that hold between any two calls."""
        self.core.check()
        stats = self.core.stats()
        assert stats.free_blocks + stats.cached_blocks + stats.used_blocks == stats.total_blocks
        for sequence in self.core._scheduler.sequences():
            has_blocks = bool(sequence.table.blocks)
            assert has_blocks == (sequence.status is not SequenceStatus.WAITING)
            if not has_blocks:
                assert sequence.num_computed_tokens == 0
            assert 0 <= sequence.num_pending < self.config.depth
            assert sequence.length <= sequence.length_limit
            if sequence.status is SequenceStatus.DECODE:
                assert sequence.num_remaining_tokens == 1
        for name, got in self.collected.items():
            if got.finish is None:
                self._check_answer(name, got)

    def drain(self) -> None:
        """Lets everything end, and checks how it did."""
        for _ in range(5000):
            if not self.core.has_work:
                break
            self.step()
            self.core.check()
        assert not self.core.has_work, "the engine does not come to an end"
        assert set(self.collected) == set(self.requests)
        for name, got in self.collected.items():
            assert got.finish is not None, name
            self._check_answer(name, got)
            self._check_finish(name, got)
        stats = self.core.stats()
        assert (stats.used_blocks, stats.num_running, stats.num_waiting) == (0, 0, 0)
        assert stats.num_finished == len(self.requests)
        assert not self.allocator._computing, "somebody who has gone is still waited for"

    def shut_down(self) -> None:
        """Ends everything at once."""
        self._collect(self.core.abort_all(FinishType.SHUTDOWN))
        self.drain()

    def _has_ended(self, name: str) -> bool:
        return name in self.collected and self.collected[name].finish is not None

    def _collect(self, outputs: list[RequestOutput]) -> None:
        for output in outputs:
            collect(self.collected, output)

    def _check_answer(self, name: str, got: Collected) -> None:
        """Whatever its company, a request gets the tokens that it gets alone, and their text
        up to the stop."""
        request = self.requests[name]
        expected = expected_tokens(request.prompt_token_ids, len(got.token_ids))
        assert got.token_ids == expected, name
        text = bytes(expected).decode()
        for stop in request.params.stop:
            text = text.split(stop)[0]
        assert text.startswith(got.text), name
        if got.finish is not None and got.finish_type != "stop_string":
            assert len(text) == len(expected), "a stop string was passed over"

    def _check_finish(self, name: str, got: Collected) -> None:
        request = self.requests[name]
        finish = got.outputs[-1].finish
        assert finish is not None
        usage = finish.usage
        assert usage.completion_tokens == len(got.token_ids)
        assert usage.prompt_tokens == len(request.prompt_token_ids)
        assert usage.cached_tokens == self.runner.first_starts.get(request.request_id, 0)
        assert usage.cached_tokens < usage.prompt_tokens
        num_tokens = usage.prompt_tokens + usage.completion_tokens
        match got.finish_type:
            case "max_tokens":
                assert usage.completion_tokens == request.params.max_tokens
            case "context_window":
                assert num_tokens == self.config.max_model_len
            case "kv_capacity":
                assert num_tokens == self.allocator.capacity_tokens
            case "stop_string":
                text = bytes(got.token_ids).decode()
                assert any(text.endswith(stop) for stop in request.params.stop)
            case "error":
                assert request.request_id in self.runner.failing
            case "deadline":
                assert request.deadline_s is not None
                assert self.clock.now_s >= request.deadline_s
            case other:
                assert other in ("cancelled", "shutdown")
