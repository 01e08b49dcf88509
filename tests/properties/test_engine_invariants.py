"""The engine's invariants under any history: one terminal output for each request, balanced
books, answers that do not depend on company, and explicit states (`EngineTrial.check`)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.support.engine_trial import PREFIXES, EngineTrial, TrialConfig


class EngineMachine(RuleBasedStateMachine):
    """Submit, step, abort, fail and let time pass, on a pool that is often too small, with one
    step or two in flight."""

    trial: EngineTrial

    @initialize(
        num_blocks=st.integers(4, 20),
        block_size=st.sampled_from((1, 3, 4)),
        max_num_seqs=st.integers(1, 6),
        budget=st.integers(7, 40),
        caching=st.booleans(),
        draft_share=st.sampled_from((0.0, 0.5, 1.0)),
        draft_max_batch=st.sampled_from((1, 2, 99)),
        depth=st.sampled_from((1, 2, 2)),
        step_s=st.sampled_from((0.001, 0.5)),
        seed=st.integers(0, 999),
    )
    def start(
        self,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int,
        budget: int,
        caching: bool,
        draft_share: float,
        draft_max_batch: int,
        depth: int,
        step_s: float,
        seed: int,
    ) -> None:
        self.trial = EngineTrial(
            TrialConfig(
                num_blocks=num_blocks,
                block_size=block_size,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=budget,
                enable_prefix_cache=caching,
                draft_share=draft_share,
                draft_max_batch=draft_max_batch,
                depth=depth,
                step_s=step_s,
                seed=seed,
            )
        )

    @rule(
        prefix=st.integers(0, len(PREFIXES) - 1),
        tail=st.integers(1, 20),
        max_tokens=st.one_of(st.none(), st.integers(1, 30)),
        num_choices=st.sampled_from((1, 1, 1, 2, 4)),
        priority=st.integers(0, 1),
        timeout=st.one_of(st.none(), st.floats(0.0, 50.0)),
        user=st.sampled_from(("", "a", "b")),
        salt=st.sampled_from(("", "", "s")),
        stop=st.sampled_from(((), ("e",), ("ab", "q"))),
    )
    def submit(
        self,
        prefix: int,
        tail: int,
        max_tokens: int | None,
        num_choices: int,
        priority: int,
        timeout: float | None,
        user: str,
        salt: str,
        stop: tuple[str, ...],
    ) -> None:
        self.trial.submit(
            prefix,
            tail,
            max_tokens=max_tokens,
            num_choices=num_choices,
            priority=priority,
            timeout_steps=timeout,
            user=user,
            salt=salt,
            stop=stop,
        )

    @precondition(lambda self: self.trial.requests)
    @rule(data=st.data(), tail=st.integers(1, 8))
    def submit_with_a_wrong_leader(self, data: st.DataObject, tail: int) -> None:
        """Whoever claims to have a prompt that it has not must get its own answer all the same."""
        self.trial.submit(1, tail, max_tokens=6, leader=self._any_name(data))

    @precondition(lambda self: self.trial.core.has_work)
    @rule(steps=st.integers(1, 8))
    def step(self, steps: int) -> None:
        self.trial.step(steps)

    @precondition(lambda self: self.trial.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.trial.abort(self._any_name(data))

    @precondition(lambda self: self.trial.requests)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.trial.fail(self._any_name(data))

    @rule()
    def abort_nobody(self) -> None:
        self.trial.abort("never seen")

    @precondition(lambda self: len(self.trial.requests) > 12)
    @rule()
    def shut_down(self) -> None:
        """Everything ends at once; what is sent later is served as ever."""
        self.trial.shut_down()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "trial"):
            self.trial.check()

    def teardown(self) -> None:
        if hasattr(self, "trial"):
            self.trial.drain()

    def _any_name(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.trial.requests)))


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(stateful_step_count=30, deadline=None)
