from __future__ import annotations

import pytest

from engine.scheduling.step_cost import StepCost


def test_nothing_is_known_before_the_first_step() -> None:
    assert StepCost().fit() is None


def test_recovers_a_line() -> None:
    cost = StepCost()
    for tokens in (1, 64, 5, 128, 32):
        cost.observe(tokens, 0.1 + 0.002 * tokens)
    fitted = cost.fit()
    assert fitted is not None
    assert fitted == pytest.approx((0.1, 0.002))


def test_follows_a_machine_that_became_slower() -> None:
    cost = StepCost()
    for tokens in (1, 50) * 50:
        cost.observe(tokens, 0.01 + 0.001 * tokens)
    for tokens in (1, 50) * 200:
        cost.observe(tokens, 0.02 + 0.004 * tokens)
    fitted = cost.fit()
    assert fitted is not None
    assert fitted[1] == pytest.approx(0.004, rel=0.05)


def test_steps_of_one_size_overrate_more_tokens() -> None:
    cost = StepCost()
    for _ in range(10):
        cost.observe(1, 0.1)
    assert cost.fit() == pytest.approx((0.0, 0.1))
