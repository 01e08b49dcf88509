from __future__ import annotations

from engine.scheduling.prefill_budget import PrefillBudget
from engine.scheduling.step_cost import StepCost, num_pairs


def make(
    tokens: int, seconds: float, *, per_token: float | None = 0.001, is_due: bool = True
) -> PrefillBudget:
    cost = StepCost()
    if per_token is not None:
        for count in (10, 100):
            cost.observe(0, count, num_pairs(0, count), per_token * count)
    return PrefillBudget(cost, tokens, seconds, min_tokens=32, is_due=is_due)


def test_tokens_bound_a_step_before_anything_is_known() -> None:
    budget = make(100, 0.001, per_token=None)
    assert budget.take(0, 60) == 60
    assert budget.take(0, 60) == 40
    assert budget.is_spent


def test_seconds_bound_a_step() -> None:
    budget = make(512, 0.1)
    assert budget.take(0, 70) == 70
    assert budget.take(0, 70) in (29, 30)
    assert budget.is_spent


def test_a_first_chunk_is_not_too_small_and_ends_the_step() -> None:
    budget = make(512, 0.005)
    assert budget.take(0, 200) == 32
    assert budget.is_spent


def test_without_time_there_is_no_chunk_until_it_is_due() -> None:
    assert make(512, 0.005, is_due=False).is_spent
    assert not make(512, 0.04, is_due=False).is_spent


def test_a_short_rest_of_a_prompt_is_done_whole() -> None:
    assert make(512, 0.005).take(900, 9) == 9


def test_a_chunk_that_is_due_is_given_without_any_time() -> None:
    budget = make(512, -0.5)
    assert budget.take(0, 200) == 32
    assert budget.is_spent
    assert make(512, -0.5, is_due=False).is_spent


def test_no_tokens_left_is_no_chunk() -> None:
    assert make(0, 1.0).is_spent
