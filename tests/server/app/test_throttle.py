"""So many tries a minute."""

from __future__ import annotations

import pytest

from server.app.throttle import Throttle
from server.service.errors import RateLimitedError


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_tries_come_back_one_by_one() -> None:
    clock = Clock()
    throttle = Throttle(3, window_s=60, clock=clock)
    for _ in range(3):
        throttle.enter("ana")
        clock.now_s += 10
    with pytest.raises(RateLimitedError) as refused:
        throttle.enter("ana")
    assert refused.value.retry_after_ms == 30_000
    throttle.enter("ben")
    clock.now_s += 30
    throttle.enter("ana")
    with pytest.raises(RateLimitedError):
        throttle.enter("ana")


def test_what_went_well_does_not_count() -> None:
    throttle = Throttle(2, clock=Clock())
    for _ in range(10):
        throttle.enter("ana")
        throttle.take_back("ana")
    throttle.enter("ana")
    throttle.enter("ana")
    with pytest.raises(RateLimitedError):
        throttle.enter("ana")
    throttle.take_back("nobody")


def test_many_names_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.app.throttle._MAX_KEYS", 50)
    clock = Clock()
    throttle = Throttle(1, clock=clock)
    for number in range(500):
        throttle.enter(f"name{number}")
    assert len(throttle._tries) <= 50
    with pytest.raises(RateLimitedError):
        throttle.enter("name499")
    clock.now_s += 60
    for number in range(2):
        throttle.enter(f"late{number}")
    assert set(throttle._tries) <= {"late0", "late1"}, "what no longer counts goes first"
