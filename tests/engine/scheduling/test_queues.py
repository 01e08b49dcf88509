from __future__ import annotations

from engine.scheduling.queues import WaitingQueue, urgency
from engine.scheduling.sequence import Sequence
from tests.support.engines import make_request

AGEING_TOKENS_PER_S = 50.0


def make_queue(*entries: tuple[str, int, float, int]) -> WaitingQueue:
    queue = WaitingQueue()
    for name, size, arrival_s, priority in entries:
        queue.add(Sequence(make_request(name, size, priority=priority), arrival_s=arrival_s))
    return queue


def names(queue: WaitingQueue, now_s: float) -> list[str]:
    def key(sequence: Sequence) -> tuple[int, bool, float, float]:
        return urgency(sequence, sequence.num_remaining_tokens, now_s, AGEING_TOKENS_PER_S)

    return [sequence.request_id for sequence in sorted(queue, key=key)]


def test_shorter_prompts_first() -> None:
    assert names(make_queue(("long", 500, 0.0, 0), ("short", 10, 0.0, 0)), 0.1) == ["short", "long"]


def test_age_wins_over_length_in_the_end() -> None:
    wait_s = 500 / AGEING_TOKENS_PER_S
    queue = make_queue(("old long", 500, 0.0, 0), ("new short", 10, wait_s, 0))
    assert names(queue, wait_s)[0] == "old long"


def test_priority_comes_before_everything() -> None:
    assert names(make_queue(("batch", 1, 0.0, 5), ("person", 900, 9.0, 0)), 9.0)[0] == "person"


def test_equal_work_keeps_the_order_of_arrival() -> None:
    queue = make_queue(("b", 8, 0.0, 0), ("a", 8, 0.0, 0))
    assert names(queue, 1.0) == ["b", "a"]


def test_a_preempted_stream_comes_before_new_requests() -> None:
    """It has all its tokens to compute again, so by work alone every newcomer overtook it."""
    queue = make_queue(("short", 10, 0.0, 0), ("person", 10, 0.0, -1))
    stalled = Sequence(make_request("stalled", 400), arrival_s=0.0)
    stalled.num_preemptions = 1
    queue.add(stalled)
    assert names(queue, 0.1) == ["person", "stalled", "short"]
