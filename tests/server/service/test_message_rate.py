"""How many messages a WebSocket may send: never more than the rate and one burst allow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.service.message_rate import MessageRate

PER_S = 10.0
BURST = 20


@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=200))
def test_any_stretch_of_time_has_its_share(gaps: list[float]) -> None:
    rate = MessageRate(PER_S, 0.0)
    now_s = 0.0
    taken_at: list[float] = []
    for gap in gaps:
        now_s += gap
        if rate.take(now_s) is None:
            taken_at.append(now_s)
    for first, began_s in enumerate(taken_at):
        for last in range(first, len(taken_at)):
            most = BURST + PER_S * (taken_at[last] - began_s)
            assert last - first + 1 <= most + 1e-6


def test_a_refusal_says_when_to_come_back() -> None:
    rate = MessageRate(PER_S, 5.0)
    assert [rate.take(5.0) for _ in range(BURST)] == [None] * BURST
    retry_after_ms = rate.take(5.0)
    assert retry_after_ms == 101
    assert rate.take(5.0 + retry_after_ms / 1000) is None
    assert rate.take(5.0 + retry_after_ms / 1000) == 100, "a little of the next is there"


def test_only_who_goes_on_regardless_floods() -> None:
    rate = MessageRate(PER_S, 0.0)
    for _ in range(2 * BURST):
        rate.take(0.0)
    assert not rate.is_flooded
    rate.take(0.0)
    assert rate.is_flooded
    assert rate.take(1.0) is None
    assert not rate.is_flooded
