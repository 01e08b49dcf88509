"""How long a place in the queue takes, by ends that the test makes."""

from __future__ import annotations

import pytest

from server.service.queue_estimate import QueueEstimate


def _busy(estimate: QueueEstimate, ends: list[float], start_s: float = 0.0) -> None:
    estimate.observe(start_s, is_waiting=True)
    for end_s in ends:
        estimate.ended(start_s + end_s, is_waiting=True)


def test_a_few_ends_are_needed() -> None:
    estimate = QueueEstimate()
    assert estimate.wait_s(1) is None
    _busy(estimate, [1, 2, 3])
    assert estimate.wait_s(1) is None
    estimate.ended(4, is_waiting=True)
    assert estimate.wait_s(1) == pytest.approx(1.0)
    assert estimate.wait_s(7) == pytest.approx(7.0)


def test_ends_that_come_together_count_each() -> None:
    """A step that ends eight answers, every two seconds: four a second."""
    estimate = QueueEstimate()
    _busy(estimate, [2.0 * (number // 8) for number in range(8, 88)])
    assert estimate.wait_s(4) == pytest.approx(1.0, rel=0.15)


def test_time_without_a_queue_does_not_count() -> None:
    """One answer a minute came and went; then a hundred wait, and one a second ends."""
    estimate = QueueEstimate()
    for number in range(50):
        estimate.ended(60.0 * number, is_waiting=False)
    assert estimate.wait_s(1) is None
    _busy(estimate, [1, 2, 3, 4, 5], 3000)
    assert estimate.wait_s(10) == pytest.approx(10.0)
    estimate.ended(3006, is_waiting=False)
    _busy(estimate, [1, 2], 9000)
    assert estimate.wait_s(10) == pytest.approx(10.0, rel=0.2)


def test_a_new_pace_replaces_the_old_one() -> None:
    estimate = QueueEstimate()
    _busy(estimate, [0.1 * number for number in range(100)])
    _busy(estimate, [10.0 * number for number in range(1, 20)], 10)
    assert estimate.wait_s(1) == pytest.approx(10.0, rel=0.2)


def test_ends_of_one_moment_say_nothing() -> None:
    estimate = QueueEstimate()
    _busy(estimate, [5, 5, 5, 5, 5])
    assert estimate.wait_s(1) is None
