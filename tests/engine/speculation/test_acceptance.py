from __future__ import annotations

import pytest

from engine.speculation.acceptance import AcceptanceRates
from engine.speculation.ngram_index import MAX_LENGTH, MIN_LENGTH


def test_longer_matches_are_trusted_more_before_anything_is_seen() -> None:
    rates = [AcceptanceRates().rate(n) for n in range(MIN_LENGTH, MAX_LENGTH + 1)]
    assert rates == sorted(rates)
    assert 0.4 < rates[0] < rates[-1] < 0.95


def test_a_few_misses_are_enough_to_lose_trust() -> None:
    rates = AcceptanceRates()
    for _ in range(4):
        rates.observe(2, False)
    assert rates.rate(2) < 0.25
    assert rates.rate(3) == AcceptanceRates().rate(3), "lengths are told apart"


def test_a_rate_follows_what_changes() -> None:
    rates = AcceptanceRates()
    for _ in range(100):
        rates.observe(8, True)
    assert rates.rate(8) > 0.95
    for _ in range(15):
        rates.observe(8, False)
    assert rates.rate(8) < 0.4


def test_a_new_sequence_begins_with_what_all_have_shown() -> None:
    common = AcceptanceRates(keep=0.98)
    first = AcceptanceRates(common)
    for _ in range(50):
        first.observe(2, False)
    second = AcceptanceRates(common)
    assert second.rate(2) == pytest.approx(common.rate(2))
    assert second.rate(2) < 0.1
    for _ in range(10):
        second.observe(2, True)
    assert second.rate(2) > 0.6 > common.rate(2), "and soon goes by its own"
