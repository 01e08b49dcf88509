from __future__ import annotations

import random

import pytest

from engine.speculation.row_cost import RowCost


def learned(steps: list[tuple[int, float]]) -> RowCost:
    cost = RowCost()
    for rows, seconds in steps:
        cost.observe(rows, seconds)
    return cost


def relative(cost: RowCost, rows: int) -> float:
    """A step of `rows` rows against one of a single row."""
    return cost.ratio(rows) / cost.ratio(1)


def test_unseen_sizes_are_worth_a_try_one_doubling_at_a_time() -> None:
    cost = RowCost()
    assert cost.max_rows == 1
    cost.observe(1, 0.01)
    assert cost.max_rows == 2
    assert 1.0 < relative(cost, 2) < 1.1
    cost.observe(2, 0.01)
    assert cost.max_rows == 4


def test_a_jump_between_sizes_is_learned_where_it_is() -> None:
    steps = [(rows, 0.01 if rows <= 4 else 0.018) for rows in (1, 2, 4, 5, 9)] * 20
    cost = learned(steps)
    for rows in (2, 3, 4):
        assert relative(cost, rows) == pytest.approx(1.0, abs=0.03)
    for rows in (5, 7, 9):
        assert relative(cost, rows) == pytest.approx(1.8, abs=0.06)


def test_a_slope_goes_on_beyond_what_was_seen() -> None:
    cost = learned([(1, 0.01), (2, 0.015), (3, 0.02)] * 30)
    assert relative(cost, 6) == pytest.approx(3.5, abs=0.2)


def test_steps_of_different_times_are_compared_by_their_own_time() -> None:
    """Contexts grow: later steps of any size take longer, and that is no cost of rows."""
    cost = RowCost()
    for step in range(300):
        scale = 0.01 * (1.0 + step / 100)
        cost.observe(1 if step % 3 else 5, scale * (1.0 if step % 3 else 1.3))
    assert relative(cost, 5) == pytest.approx(1.3, abs=0.08)


def test_noise_averages_out() -> None:
    noise = random.Random(1)
    cost = RowCost()
    for step in range(400):
        rows = 1 + step % 2 * 3
        cost.observe(rows, 0.01 * (1.0 + 0.1 * (rows - 1)) * noise.uniform(0.8, 1.25))
    assert relative(cost, 4) == pytest.approx(1.3, abs=0.13)


def test_one_step_that_was_disturbed_does_not_decide() -> None:
    cost = learned([(1, 0.01)] * 10 + [(4, 1.0)] + [(1, 0.01)] * 5)
    assert relative(cost, 4) < 1.5, "it took a hundred times as long"
    for _ in range(8):
        cost.observe(4, 0.011)
        cost.observe(1, 0.01)
    assert relative(cost, 4) < 1.2
    for _ in range(8):
        cost.observe(4, 0.03)
        cost.observe(1, 0.01)
    assert relative(cost, 4) > 1.6, "again and again it is no disturbance"


def test_a_step_without_a_time_is_ignored() -> None:
    cost = learned([(1, 0.0), (1, 0.01), (2, 0.0)])
    assert cost.max_rows == 2
