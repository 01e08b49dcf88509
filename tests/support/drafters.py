"""Drafters and models that say what a test wants, and a core around them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.core import EngineCore
from engine.execution.runner import ModelRunner, Sample, StepResult
from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence as EngineSequence
from engine.text.byte_tokenizer import ByteTokenizer
from engine.text.protocol import Tokenizer
from engine.types import RequestId
from tests.support.engines import CacheRunner, Clock, next_token

NextToken = Callable[[list[int]], int]


@dataclass
class GuessingDrafter:
    """Implements `Drafter`: of each draft the first `num_right()` tokens are what `next_token`
    says, the next one is not, and it has `length()` tokens, whatever the limit is if
    `ignores_limit`."""

    next_token: NextToken
    length: Callable[[], int]
    num_right: Callable[[], int]
    ignores_limit: bool = False
    max_batch: int = 1 << 30
    asked: list[tuple[RequestId, int]] = field(default_factory=list)
    proposed: list[int] = field(default_factory=list)
    observed: list[tuple[int, int]] = field(default_factory=list)
    num_steps: int = 0
    forgotten: list[RequestId] = field(default_factory=list)

    def propose(self, sequence: EngineSequence, limit: int, num_decoding: int) -> tuple[int, ...]:
        self.asked.append((sequence.request_id, limit))
        num_right = self.num_right()
        tokens = list(sequence.token_ids)
        count = self.length() if self.ignores_limit else min(self.length(), limit)
        self.proposed += [count] if count else []
        for index in range(count):
            token = self.next_token(tokens)
            tokens.append(token if index < num_right else token ^ 1)
        return tuple(tokens[sequence.num_tokens :])

    def observe(self, sequence: EngineSequence, num_drafted: int, num_accepted: int) -> None:
        self.observed.append((num_drafted, num_accepted))

    def observe_step(self, output: SchedulerOutput, seconds: float) -> None:
        self.num_steps += 1

    def forget(self, sequence: EngineSequence) -> None:
        self.forgotten.append(sequence.request_id)


def always(value: int) -> Callable[[], int]:
    """The same each time."""
    return lambda: value


def any_of(values: Sequence[int], seed: int = 0) -> Callable[[], int]:
    """Another one each time, the same in each run."""
    noise = random.Random(seed)
    return lambda: noise.choice(values)


DRAFTERS: dict[str, Callable[[NextToken], GuessingDrafter]] = {
    "right": lambda model: GuessingDrafter(model, always(4), always(99)),
    "wrong": lambda model: GuessingDrafter(model, always(4), always(0)),
    "partly_right": lambda model: GuessingDrafter(model, always(5), any_of(range(6))),
    "of_any_length": lambda model: GuessingDrafter(model, any_of(range(12)), any_of((0, 2, 99))),
    "too_long": lambda model: GuessingDrafter(model, always(40), always(99), ignores_limit=True),
}


@dataclass
class SlotRunner(CacheRunner):
    """A `CacheRunner` whose next token is `next_token` of all tokens before it. What a refused
    draft left in the cache, or a block that holds other tokens than those it was found for, is
    an error at once."""

    next_token: NextToken = next_token

    def execute(self, plan: SchedulerOutput) -> StepResult:
        super().execute(plan)
        return StepResult([self._sample(item) for item in plan.scheduled if item.samples])

    def _sample(self, item: ScheduledSequence) -> Sample:
        tokens = list(item.sequence.token_ids)
        token_ids: list[int] = []
        for draft in (*item.draft_token_ids, None):
            token_ids.append(self.next_token([*tokens, *token_ids]))
            if token_ids[-1] != draft:
                break
        return Sample(tuple(token_ids))


def make_drafting_core(
    drafter: Drafter | None,
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_model_len: int = 10_000,
    limits: SchedulerLimits | None = None,
    runner: ModelRunner | None = None,
    model: NextToken = next_token,
    enable_prefix_cache: bool = True,
    clock: Clock | None = None,
    tokenizer: Tokenizer | None = None,
) -> EngineCore:
    """A core over a `SlotRunner` of `model` (or `runner`) and a byte tokenizer."""
    clock = clock or Clock()
    return EngineCore(
        runner or SlotRunner(clock, block_size=block_size, next_token=model),
        tokenizer or ByteTokenizer(),
        BlockAllocator(num_blocks, block_size, enable_prefix_cache=enable_prefix_cache),
        limits or SchedulerLimits(),
        max_model_len=max_model_len,
        clock=clock,
        drafter=drafter,
    )
