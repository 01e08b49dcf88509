"""What a request may ask of the queue."""

from __future__ import annotations

from typing import Any

import pytest

from server.service.auth import Access, Caller, UserId
from server.service.errors import BadRequestError
from server.service.limits import ServiceLimits
from server.service.request_terms import BATCH, INTERACTIVE, Terms, terms

LIMITS = ServiceLimits(request_timeout_s=60)
ANNA = Caller(UserId("anna"))
NIGHTLY = Caller(UserId("nightly"), frozenset({Access.BATCH}))


def _terms(caller: Caller = ANNA, **fields: Any) -> Terms:
    return terms(caller=caller, limits=LIMITS, arrived_s=1000.0, **fields)


def test_nothing_asked() -> None:
    assert _terms() == Terms(1060.0, INTERACTIVE, "anna", "anna")


def test_time_counts_from_the_arrival() -> None:
    assert _terms(timeout=2.5).deadline_s == 1002.5
    assert _terms(timeout=60).deadline_s == 1060.0


def test_who_pays_is_not_whose_share_it_takes() -> None:
    told = _terms(user="client:ben")
    assert (told.user, told.account) == ("client:ben", "anna")


@pytest.mark.parametrize(
    ("asked", "priority"),
    [
        ({"priority": "batch"}, BATCH),
        ({"priority": "interactive"}, INTERACTIVE),
        ({"service_tier": "flex"}, BATCH),
        ({"service_tier": "auto"}, INTERACTIVE),
        ({"service_tier": "priority"}, INTERACTIVE),
        ({"service_tier": "flex", "priority": "interactive"}, INTERACTIVE),
        ({"service_tier": "default", "priority": "batch"}, BATCH),
    ],
)
def test_priorities(asked: dict[str, Any], priority: int) -> None:
    assert _terms(**asked).priority == priority
    assert _terms(NIGHTLY, **asked).priority == BATCH


def test_a_caller_for_batches_only_never_overtakes_people() -> None:
    assert _terms(NIGHTLY).priority == BATCH
    both = Caller(UserId("both"), frozenset({Access.BATCH, Access.CHAT}))
    assert _terms(both).priority == INTERACTIVE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("timeout", value) for value in (0, -1, 60.001, float("inf"), float("nan"), 1e300)],
        ("priority", "urgent"),
        ("priority", ""),
        ("priority", "x" * 10_000),
        ("service_tier", "gold"),
    ],
)
def test_bad_values_are_named_with_their_range(field: str, value: Any) -> None:
    with pytest.raises(BadRequestError, match=field) as refused:
        _terms(NIGHTLY, param_prefix="options.", **{field: value})
    assert refused.value.param == f"options.{field}"
    assert len(refused.value.message) < 200
