"""The engine's invariants under any history: one terminal output for each request, balanced
books, answers that do not depend on company, and explicit states."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.scheduling.scheduler import SchedulerLimits
from engine.scheduling.sequence import SequenceStatus
from engine.types import FinishType, RequestId
from tests.support.engines import Collected, collect, expected_tokens, make_core, make_request

PREFIXES = ((), tuple(range(8)), tuple(range(12)), (*tuple(range(8)), 50, 51, 52, 53, 54))


class EngineMachine(RuleBasedStateMachine):
    """Submit, step, abort and let time pass, on a pool that is often too small."""

    def __init__(self) -> None:
        super().__init__()
        limits = SchedulerLimits(max_num_seqs=5, max_num_batched_tokens=16, min_chunk_tokens=4)
        self.core, self.clock = make_core(
            num_blocks=14, block_size=4, max_model_len=50, limits=limits
        )
        self.prompts: dict[str, tuple[int, ...]] = {}
        self.limits: dict[str, int] = {}
        self.collected: dict[str, Collected] = {}

    @rule(
        prefix=st.sampled_from(PREFIXES),
        tail=st.integers(1, 20),
        max_tokens=st.integers(1, 30),
        priority=st.integers(0, 1),
        deadline=st.one_of(st.none(), st.floats(0.0, 0.05)),
    )
    def submit(
        self,
        prefix: tuple[int, ...],
        tail: int,
        max_tokens: int,
        priority: int,
        deadline: float | None,
    ) -> None:
        name = f"r{len(self.prompts)}"
        prompt = prefix + tuple((len(self.prompts) * 13 + i) % 90 for i in range(tail))
        self.core.add(
            make_request(
                name,
                prompt,
                max_tokens=max_tokens,
                priority=priority,
                deadline_s=None if deadline is None else self.clock.now_s + deadline,
            )
        )
        self.prompts[name] = prompt
        self.limits[name] = max_tokens

    @precondition(lambda self: self.core.has_work)
    @rule(steps=st.integers(1, 8))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            for output in self.core.step():
                collect(self.collected, output)

    @precondition(lambda self: self.prompts)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.prompts)))
        outputs = self.core.abort(RequestId(name), FinishType.CANCELLED)
        was_ended = name in self.collected and self.collected[name].finish is not None
        assert len(outputs) == (0 if was_ended else 1)
        for output in outputs:
            collect(self.collected, output)

    @invariant()
    def books_balance(self) -> None:
        self.core.check()
        stats = self.core.stats()
        assert stats.free_blocks + stats.cached_blocks + stats.used_blocks == stats.total_blocks

    @invariant()
    def states_are_explicit(self) -> None:
        for sequence in self.core._scheduler.sequences():
            holds_blocks = bool(sequence.table.blocks)
            assert holds_blocks == (sequence.status is not SequenceStatus.WAITING)
            if not holds_blocks:
                assert sequence.num_computed_tokens == 0
            if sequence.status is SequenceStatus.DECODE:
                assert sequence.num_remaining_tokens == 1

    @invariant()
    def answers_do_not_depend_on_company(self) -> None:
        for name, got in self.collected.items():
            expected = expected_tokens(self.prompts[name], len(got.token_ids))
            assert got.token_ids == expected
            assert bytes(expected).decode().startswith(got.text)

    def teardown(self) -> None:
        for _ in range(3000):
            if not self.core.has_work:
                break
            for output in self.core.step():
                collect(self.collected, output)
        assert not self.core.has_work, "the engine does not come to an end"
        assert set(self.collected) == set(self.prompts)
        for name, got in self.collected.items():
            assert got.finish is not None, name
            assert got.text == bytes(got.token_ids).decode()
            if got.finish_type == "max_tokens":
                assert len(got.token_ids) == self.limits[name]
        assert self.core.stats().used_blocks == 0


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(stateful_step_count=30, deadline=None)
