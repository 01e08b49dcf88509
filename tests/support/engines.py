"""Small engine parts for tests: sequences, plans and a core with a manual clock."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from random import Random

from engine.core import EngineCore
from engine.execution.runner import ModelRunner, Sample, StepResult, SynchronousRunner
from engine.kv.block_allocator import BlockAllocator
from engine.scheduling.drafter import Drafter, NoDrafts
from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.scheduler_output import ScheduledSequence, SchedulerOutput
from engine.scheduling.sequence import Sequence
from engine.text.byte_tokenizer import ByteTokenizer
from engine.types import GenerationRequest, RequestId, RequestOutput, SamplingParams


@dataclass
class Clock:
    """Time that moves only when a test moves it."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class CountingRunner(SynchronousRunner):
    """A model whose next token is a fixed function of the tokens before it, so that any way of
    scheduling the same request must give the same answer. Keeps the plans it was given."""

    clock: Clock
    step_s: float = 0.001
    plans: list[SchedulerOutput] = field(default_factory=list)

    def execute(self, plan: SchedulerOutput) -> StepResult:
        self.plans.append(plan)
        self.clock.now_s += self.step_s
        for item in plan.scheduled:
            assert 0 < item.num_tokens == len(item.token_ids)
            assert not item.is_pending
        return StepResult([_sample(item) for item in plan.scheduled if item.samples])

    def forget(self, request_id: RequestId) -> None:
        pass


def _sample(item: ScheduledSequence) -> Sample:
    token_ids: list[int] = []
    for draft in (*item.draft_token_ids, None):
        token_ids.append(next_token([*item.sequence.token_ids, *token_ids]))
        if token_ids[-1] != draft:
            break
    return Sample(tuple(token_ids))


@dataclass
class CacheRunner(CountingRunner):
    """Keeps what a model would have in its KV cache, slot by slot, and answers only if every
    sequence finds its own tokens there: a block that was shared wrongly, copied late or
    overwritten too early is an error at once."""

    block_size: int = 4
    slots: dict[int, int] = field(default_factory=dict)
    """For each slot, a digest of all tokens up to its own."""

    def execute(self, plan: SchedulerOutput) -> StepResult:
        sources = {source for source, _ in plan.copies}
        assert sources.isdisjoint(destination for _, destination in plan.copies)
        for source, destination in plan.copies:
            for offset in range(self.block_size):
                digest = self.slots.get(source * self.block_size + offset)
                if digest is not None:
                    self.slots[destination * self.block_size + offset] = digest
        written: set[int] = set()
        for item in plan.scheduled:
            digests = _digests([*item.sequence.token_ids, *item.draft_token_ids])
            for position in range(item.start, item.start + item.num_tokens):
                slot = self._slot(item.sequence, position)
                assert slot not in written, "two sequences write into one slot"
                written.add(slot)
                self.slots[slot] = digests[position]
        for item in plan.scheduled:
            digests = _digests([*item.sequence.token_ids, *item.draft_token_ids])
            for position in range(item.start + item.num_tokens):
                found = self.slots.get(self._slot(item.sequence, position))
                assert found == digests[position], (item.sequence.request_id, position)
        return super().execute(plan)

    def _slot(self, sequence: Sequence, position: int) -> int:
        block = sequence.table.blocks[position // self.block_size]
        return block * self.block_size + position % self.block_size


@dataclass(frozen=True)
class _Launched:
    """A step that a `PipelinedRunner` has in flight."""

    runner: PipelinedRunner
    result: StepResult

    def wait(self) -> StepResult:
        assert self.runner.in_flight.popleft() is self, "steps are waited for in their order"
        self.runner.clock.now_s += self.runner.step_s
        return self.result


@dataclass
class PipelinedRunner:
    """A `CacheRunner` of a device that computes steps in the order in which they are launched,
    while nobody here knows the tokens of those before. It has a state of its own: the tokens of
    each request, and what its cache holds, slot by slot. A token that is pending must come from a
    step that it has computed; one that is known must be what it computed; and the whole context of
    a sequence must lie in the cache as its own tokens say, written by this step or one before."""

    clock: Clock
    block_size: int = 4
    step_s: float = 0.001
    depth: int = 2
    failing: set[RequestId] = field(default_factory=set)
    """Fail when they are next computed."""
    slots: dict[int, int] = field(default_factory=dict)
    """For each slot, a digest of all tokens up to its own."""
    tokens: dict[Sequence, list[int]] = field(default_factory=dict)
    """Of each sequence that has blocks or is in flight, sampled ones included."""
    in_flight: deque[_Launched] = field(default_factory=deque)
    preempted: Counter[Sequence] = field(default_factory=Counter)
    """How often a plan said so."""
    first_starts: dict[RequestId, int] = field(default_factory=dict)
    num_copies: int = 0
    num_pending: int = 0
    """Tokens that were computed before they were known here."""
    num_sampled: int = 0
    max_in_flight: int = 0

    def launch(self, plan: SchedulerOutput) -> _Launched:
        assert len(self.in_flight) < self.depth
        self.preempted.update(plan.preempted)
        self._copy(plan)
        written: set[int] = set()
        for item in plan.scheduled:
            self.first_starts.setdefault(item.sequence.request_id, item.start)
            self._write(item, written)
        samples = [self._sample(item) for item in plan.scheduled if item.samples]
        failures = {
            item.sequence.request_id: "failed by the test"
            for item in plan.scheduled
            if item.sequence.request_id in self.failing
        }
        launched = _Launched(self, StepResult(samples, failures))
        self.in_flight.append(launched)
        self.max_in_flight = max(self.max_in_flight, len(self.in_flight))
        return launched

    def forget(self, request_id: RequestId) -> None:
        for sequence in [seq for seq in self.tokens if seq.request_id == request_id]:
            del self.tokens[sequence]

    def idle(self) -> bool:
        return False

    def _copy(self, plan: SchedulerOutput) -> None:
        sources = {source for source, _ in plan.copies}
        assert sources.isdisjoint(destination for _, destination in plan.copies)
        self.num_copies += len(plan.copies)
        for source, destination in plan.copies:
            for offset in range(self.block_size):
                digest = self.slots.get(source * self.block_size + offset)
                if digest is not None:
                    self.slots[destination * self.block_size + offset] = digest

    def _write(self, item: ScheduledSequence, written: set[int]) -> None:
        sequence = item.sequence
        assert self.preempted[sequence] == sequence.num_preemptions, "whoever keeps state is told"
        known = [*sequence.token_ids, *item.draft_token_ids]
        end = item.start + item.num_tokens
        if item.is_pending:
            assert item.num_tokens == 1, "only a sequence's last token can be pending"
            assert not item.token_ids
            assert not item.draft_token_ids
            tokens = self.tokens[sequence]
            assert tokens[: len(known)] == known
            self.num_pending += 1
        else:
            assert item.num_tokens == len(item.token_ids)
            tokens = self.tokens[sequence] = known
        assert sequence.length <= sequence.length_limit, "it ends with what is in flight"
        assert len(tokens) >= end
        assert not item.samples or len(tokens) == end
        digests = _digests(tokens)
        for position in range(item.start, end):
            slot = self._slot(sequence, position)
            assert slot not in written, "two sequences write into one slot"
            written.add(slot)
            self.slots[slot] = digests[position]
        for position in range(end):
            found = self.slots.get(self._slot(sequence, position))
            assert found == digests[position], (sequence.request_id, position)

    def _sample(self, item: ScheduledSequence) -> Sample:
        tokens = self.tokens[item.sequence]
        num_drafts = len(item.draft_token_ids)
        del tokens[len(tokens) - num_drafts :]
        sampled: list[int] = []
        for draft in (*item.draft_token_ids, None):
            sampled.append(next_token([*tokens, *sampled]))
            if sampled[-1] != draft:
                break
        tokens += sampled
        self.num_sampled += len(sampled)
        return Sample(tuple(sampled))

    def _slot(self, sequence: Sequence, position: int) -> int:
        block = sequence.table.blocks[position // self.block_size]
        return block * self.block_size + position % self.block_size


@dataclass
class RandomDrafter:
    """Guesses right with a chance of `share` for each token; draws come from `random`."""

    random: Random
    share: float = 0.6
    num_drafted: int = 0
    num_accepted: int = 0
    max_batch: int = 1 << 30

    def propose(self, sequence: Sequence, limit: int, num_decoding: int) -> tuple[int, ...]:
        tokens = list(sequence.token_ids)
        drafts: list[int] = []
        for _ in range(min(limit, self.random.randrange(6))):
            is_right = self.random.random() < self.share
            drafts.append(next_token(tokens) if is_right else 64)
            tokens.append(drafts[-1])
        return tuple(drafts)

    def observe(self, sequence: Sequence, num_drafted: int, num_accepted: int) -> None:
        assert 0 <= num_accepted <= num_drafted
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted

    def observe_step(self, output: SchedulerOutput, seconds: float) -> None:
        pass

    def forget(self, sequence: Sequence) -> None:
        pass


_FIRST_STATE = 7


def _next_state(state: int, token_id: int) -> int:
    return (state * 31 + token_id + 1) % 1_000_003


def _digests(token_ids: list[int]) -> list[int]:
    """For each token, a digest of all up to it."""
    digests, state = [], _FIRST_STATE
    for token_id in token_ids:
        state = _next_state(state, token_id)
        digests.append(state)
    return digests


def next_token(token_ids: list[int]) -> int:
    """A lower-case letter that depends on all tokens before it."""
    state = _FIRST_STATE
    for token_id in token_ids:
        state = _next_state(state, token_id)
    return 97 + state % 26


def expected_tokens(prompt: tuple[int, ...], count: int) -> list[int]:
    """What `CountingRunner` generates for `prompt`, alone."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


def make_request(
    name: str,
    prompt: int | tuple[int, ...] = 8,
    *,
    max_tokens: int | None = 8,
    priority: int = 0,
    deadline_s: float | None = None,
    salt: str = "",
    stop: tuple[str, ...] = (),
    user: str = "",
    same_prompt_as: str | None = None,
) -> GenerationRequest:
    """A greedy request; an int prompt is that many tokens, different for each name."""
    if isinstance(prompt, int):
        prompt = tuple((sum(name.encode()) + 7 * i) % 97 for i in range(prompt))
    return GenerationRequest(
        RequestId(name),
        prompt,
        SamplingParams(temperature=0.0, max_tokens=max_tokens, stop=stop),
        priority=priority,
        deadline_s=deadline_s,
        cache_salt=salt,
        user=user,
        same_prompt_as=None if same_prompt_as is None else RequestId(same_prompt_as),
    )


def make_core(
    *,
    num_blocks: int = 64,
    block_size: int = 4,
    max_model_len: int = 10_000,
    limits: SchedulerLimits | None = None,
    runner: ModelRunner | None = None,
    clock: Clock | None = None,
    enable_prefix_cache: bool = True,
    drafter: Drafter | None = None,
) -> tuple[EngineCore, Clock]:
    """A core over a `CacheRunner` (or `runner`) and a byte tokenizer."""
    clock = clock or Clock()
    core = EngineCore(
        runner or CacheRunner(clock, block_size=block_size),
        ByteTokenizer(),
        BlockAllocator(num_blocks, block_size, enable_prefix_cache=enable_prefix_cache),
        limits or SchedulerLimits(),
        max_model_len=max_model_len,
        clock=clock,
        drafter=drafter or NoDrafts(),
    )
    return core, clock


@dataclass
class Collected:
    """Everything that one request was sent."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    outputs: list[RequestOutput] = field(default_factory=list)

    @property
    def finish(self) -> object:
        return self.outputs[-1].finish if self.outputs else None

    @property
    def finish_type(self) -> str:
        finish = self.outputs[-1].finish
        assert finish is not None
        return finish.detail.type.value


def run_to_end(core: EngineCore, *, max_steps: int = 10_000) -> dict[str, Collected]:
    """Steps until nothing is left, checking the books after each step."""
    collected: dict[str, Collected] = {}
    for _ in range(max_steps):
        if not core.has_work:
            return collected
        for output in core.step():
            collect(collected, output)
        core.check()
    raise AssertionError(f"still running after {max_steps} steps")


def collect(collected: dict[str, Collected], output: RequestOutput) -> None:
    """Adds one output; fails if its request had ended before."""
    entry = collected.setdefault(output.request_id, Collected())
    assert entry.finish is None, f"output after the end of {output.request_id}"
    entry.text += output.text
    entry.token_ids += output.token_ids
    entry.outputs.append(output)
