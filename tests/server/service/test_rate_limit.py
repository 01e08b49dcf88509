"""Places and tokens of an account, by a clock that the test moves."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from engine.api import EngineState
from server.service.admission import Admission, Ticket
from server.service.errors import (
    BadRequestError,
    InternalError,
    QueueFullError,
    RateLimitedError,
    ServiceError,
)
from server.service.limits import ServiceLimits
from server.service.rate_limit import RateLimit


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class StubEngine:
    """As much of an engine as admission asks: how full it is."""

    state = EngineState.READY
    max_requests = 6

    def __init__(self) -> None:
        self.num_requests = 0


def _taken(limit: RateLimit, account: str = "a", num: int = 1, tokens: int = 0) -> None:
    limit.take(account, num_sequences=num, prompt_tokens=tokens)


def test_places_are_counted_by_answers() -> None:
    limit = RateLimit(4)
    _taken(limit, num=3)
    with pytest.raises(RateLimitedError, match="3 answers") as refused:
        _taken(limit, num=2)
    assert refused.value.retry_after_ms
    _taken(limit, "b", num=4)
    _taken(limit)
    limit.give_back("a", num_sequences=3)
    _taken(limit, num=3)
    assert (limit.num_running("a"), limit.num_running("b")) == (4, 4)


def test_more_than_there_can_ever_be_is_no_matter_of_time() -> None:
    with pytest.raises(BadRequestError) as refused:
        _taken(RateLimit(4), num=5)
    assert refused.value.param == "n"


def test_a_request_that_asks_for_more_than_it_holds() -> None:
    """What it holds already is not in its own way."""
    limit = RateLimit(4)
    _taken(limit, num=1)
    with pytest.raises(BadRequestError, match="asks for 5"):
        limit.take("a", num_sequences=4, prompt_tokens=0, num_held=1)
    _taken(limit, num=2)
    with pytest.raises(RateLimitedError, match="2 answers of yours"):
        limit.take("a", num_sequences=2, prompt_tokens=0, num_held=1)
    limit.take("a", num_sequences=1, prompt_tokens=0, num_held=1)
    assert limit.num_running("a") == 4


def test_the_bucket_says_when_it_is_worth_trying_again() -> None:
    clock = Clock()
    limit = RateLimit(100, 600, clock)  # 10 a second
    _taken(limit, tokens=500)
    with pytest.raises(RateLimitedError, match="600 tokens a minute") as refused:
        _taken(limit, tokens=150)
    assert refused.value.retry_after_ms == 5000
    clock.now_s = 4.99
    with pytest.raises(RateLimitedError):
        _taken(limit, tokens=150)
    clock.now_s = 5.01
    _taken(limit, tokens=150)


def test_sampled_tokens_leave_a_debt() -> None:
    clock = Clock()
    limit = RateLimit(100, 60, clock)
    _taken(limit, tokens=60)
    limit.charge("a", 120)
    assert limit.tokens_left("a") == -120
    with pytest.raises(RateLimitedError) as refused:
        _taken(limit)
    assert refused.value.retry_after_ms == 121_000
    clock.now_s = 121
    _taken(limit)


def test_a_prompt_larger_than_the_bucket_waits_until_it_is_full() -> None:
    clock = Clock()
    limit = RateLimit(100, 60, clock)
    _taken(limit, tokens=1)
    with pytest.raises(RateLimitedError) as refused:
        _taken(limit, tokens=500)
    assert refused.value.retry_after_ms == 1000
    clock.now_s = 1.5
    _taken(limit, tokens=500)
    assert limit.tokens_left("a") == -440


def test_a_refused_request_takes_nothing() -> None:
    limit = RateLimit(2, 60, Clock())
    _taken(limit, num=2, tokens=10)
    for num, tokens in ((1, 10), (1, 55)):
        with pytest.raises(RateLimitedError):
            _taken(limit, num=num, tokens=tokens)
    assert (limit.num_running("a"), limit.tokens_left("a")) == (2, 50)


def test_an_unused_prompt_is_given_back() -> None:
    limit = RateLimit(2, 60, Clock())
    _taken(limit, tokens=40)
    limit.give_back("a", num_sequences=1, prompt_tokens=40)
    assert limit.num_accounts == 0
    assert limit.tokens_left("a") == 60


def test_many_accounts_are_not_kept() -> None:
    clock = Clock()
    limit = RateLimit(2, 60, clock)
    most = 0
    for number in range(20_000):
        clock.now_s += 0.1
        _taken(limit, f"user{number}", tokens=20)
        limit.give_back(f"user{number}", num_sequences=1)
        most = max(most, limit.num_accounts)
    # A bucket that lacks 20 of 60 a minute is full after 20 s: 200 of them are remembered.
    assert most <= 2 * 256


def test_without_a_token_limit_only_running_accounts_are_kept() -> None:
    limit = RateLimit(2)
    for number in range(1000):
        _taken(limit, f"user{number}", tokens=10**9)
        limit.charge(f"user{number}", 10**9)
        limit.give_back(f"user{number}", num_sequences=1)
    assert limit.num_accounts == 0


TICKETS: Bundle[tuple[Ticket, dict[str, Any]]] = Bundle("tickets")
CAPACITY = 600
MAX_RUNNING = 5


class Tickets(RuleBasedStateMachine):
    """Whatever requests do, and in whatever order: what is counted is what is open, so nothing
    goes below zero and nothing is left."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.engine = StubEngine()
        limits = ServiceLimits(
            max_concurrent_per_user=MAX_RUNNING, tokens_per_minute_per_user=CAPACITY
        )
        self.admission = Admission(self.engine, limits, self.clock)  # type: ignore[arg-type]
        self.open: list[dict[str, Any]] = []

    @rule(
        target=TICKETS,
        account=st.sampled_from("ab"),
        is_run=st.booleans(),
        num=st.integers(1, 7),
        tokens=st.integers(0, 900),
    )
    def enter(self, account: str, is_run: bool, num: int, tokens: int) -> Any:
        held = {"account": account, "num": num, "preparing": not is_run, "is_open": True}
        try:
            if is_run:
                held["num"] = 1
                ticket = self.admission.enter_run(account)
            else:
                ticket = self.admission.enter(account, num_sequences=num, prompt_tokens=tokens)
        except (QueueFullError, RateLimitedError, BadRequestError):
            return (Ticket(), {**held, "is_open": False})
        self.open.append(held)
        return (ticket, held)

    @rule(item=TICKETS, num=st.integers(1, 7), tokens=st.integers(0, 900))
    def extend(self, item: tuple[Ticket, dict[str, Any]], num: int, tokens: int) -> None:
        ticket, held = item
        try:
            ticket.extend(num_sequences=num, prompt_tokens=tokens)
        except (QueueFullError, RateLimitedError, BadRequestError):
            held["preparing"] = False
            return
        if held["is_open"]:
            held.update(num=num, preparing=False)

    @rule(
        item=consumes(TICKETS),
        error=st.sampled_from([None, QueueFullError("full"), InternalError("x"), OSError()]),
        twice=st.booleans(),
    )
    def leave(
        self, item: tuple[Ticket, dict[str, Any]], error: BaseException | None, twice: bool
    ) -> None:
        ticket, held = item
        before = self.admission.rates.tokens_left(held["account"])
        ticket.__exit__(None if error is None else type(error), error, None)
        if not isinstance(error, ServiceError):
            assert self.admission.rates.tokens_left(held["account"]) == before
        if twice:
            ticket.close()
        held["is_open"] = False
        self.open = [held for held in self.open if held["is_open"]]

    @rule(account=st.sampled_from("ab"), tokens=st.integers(0, 500))
    def charge(self, account: str, tokens: int) -> None:
        self.admission.charge(account, tokens)

    @rule(passed_s=st.floats(0, 200))
    def wait(self, passed_s: float) -> None:
        self.clock.now_s += passed_s

    @rule(num=st.integers(0, 6))
    def engine_fills(self, num: int) -> None:
        self.engine.num_requests = num

    @invariant()
    def counted_is_what_is_open(self) -> None:
        rates = self.admission.rates
        for account in "ab":
            own = [held["num"] for held in self.open if held["account"] == account]
            assert rates.num_running(account) == sum(own) <= MAX_RUNNING
            assert rates.tokens_left(account) <= CAPACITY
        assert self.admission.num_preparing == sum(held["preparing"] for held in self.open)

    def teardown(self) -> None:
        self.clock.now_s += 1e6
        for account in "ab":
            assert self.admission.rates.tokens_left(account) == CAPACITY


TestTickets = Tickets.TestCase
TestTickets.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_over_an_hour_an_account_gets_its_rate_and_one_bucket() -> None:
    """Whoever always asks again as soon as it may."""
    clock, dice = Clock(), random.Random(5)
    limit = RateLimit(1, 6000, clock)
    taken = 0
    while clock.now_s < 3600:
        prompt, sampled = dice.randrange(1, 3000), dice.randrange(1, 500)
        try:
            _taken(limit, tokens=prompt)
        except RateLimitedError as refused:
            clock.now_s += (refused.retry_after_ms or 0) / 1000
            continue
        limit.charge("a", sampled)
        limit.give_back("a", num_sequences=1)
        taken += prompt + sampled
    assert 60 * 6000 - 3500 <= taken <= 61 * 6000 + 3500
