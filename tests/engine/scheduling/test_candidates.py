from __future__ import annotations

from engine.scheduling.candidates import Candidates
from engine.scheduling.fair_shares import FairShares
from engine.scheduling.sequence import Sequence, SequenceStatus
from tests.support.engines import make_request


def put(shares: FairShares, name: str, user: str, *, priority: int = 0) -> Sequence:
    shares.add(user)
    shares.wait(user)
    return Sequence(make_request(name, user=user, priority=priority), arrival_s=0.0)


def order(candidates: Candidates) -> list[str]:
    names: list[str] = []
    while candidates:
        names.append(candidates.pop().request_id)
    return names


def test_what_a_user_had_beyond_others_counts_as_work() -> None:
    shares = FairShares()
    works = [(put(shares, "greedy", "g"), 10), (put(shares, "modest", "m"), 100)]
    shares.charge("g", 89)
    assert order(Candidates(works, shares)) == ["greedy", "modest"]
    shares.charge("g", 2)
    assert order(Candidates(works, shares)) == ["modest", "greedy"]


def test_what_is_charged_on_the_way_counts_at_once() -> None:
    shares = FairShares()
    works = [(put(shares, f"g{index}", "g"), 10 + index) for index in range(3)]
    works += [(put(shares, f"m{index}", "m"), 30 + index) for index in range(2)]
    candidates, names = Candidates(works, shares), []
    while candidates:
        sequence = candidates.pop()
        names.append(sequence.request_id)
        shares.charge(sequence.request.user, 25)
    assert names == ["g0", "m0", "g1", "m1", "g2"]


def test_a_more_urgent_priority_comes_first_whatever_its_user_had() -> None:
    shares = FairShares()
    works = [(put(shares, "batch", "b", priority=1), 1), (put(shares, "person", "p"), 900)]
    shares.charge("p", 1e9)
    assert order(Candidates(works, shares)) == ["person", "batch"]


def test_equals_keep_the_order_in_which_they_were_given() -> None:
    shares = FairShares()
    works = [(put(shares, name, name[0]), 5) for name in ("b1", "a1", "b2", "a2")]
    assert order(Candidates(works, shares)) == ["b1", "a1", "b2", "a2"]


def test_who_waits_is_dropped_and_who_runs_keeps_the_order() -> None:
    shares = FairShares()
    works = [
        (put(shares, f"{user}{index}", user), 9 - index) for index in range(4) for user in "ab"
    ]
    for sequence, _ in works:
        if sequence.request_id in ("a1", "a3", "b2"):
            sequence.status = SequenceStatus.PREFILL
    candidates = Candidates(works, shares)
    assert candidates.pop().request_id == "a3"
    candidates.drop_waiting()
    assert order(candidates) == ["b2", "a1"]
    candidates = Candidates(works[:2], shares)
    candidates.drop_waiting()
    assert not candidates
