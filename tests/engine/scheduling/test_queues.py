from __future__ import annotations

from engine.scheduling.queues import AGEING_SHARE, Urgency, WaitingQueue, urgency
from engine.scheduling.sequence import Sequence
from tests.support.engines import make_request


def put(queue: WaitingQueue, name: str, size: int, *, at_s: float = 0.0, priority: int = 0) -> None:
    queue.add(Sequence(make_request(name, size, priority=priority), arrival_s=at_s))


def names(queue: WaitingQueue) -> list[str]:
    def key(sequence: Sequence) -> Urgency:
        return urgency(sequence, sequence.num_remaining_tokens)

    return [sequence.request_id for sequence in sorted(queue, key=key)]


def test_shorter_prompts_first() -> None:
    queue = WaitingQueue()
    put(queue, "long", 500)
    put(queue, "short", 10)
    assert names(queue) == ["short", "long"]


def test_a_long_prompt_is_overtaken_by_a_bounded_amount_of_work() -> None:
    """Alone in the queue, it ages by a quarter of what is done meanwhile."""
    queue = WaitingQueue()
    put(queue, "long", 500)
    queue.advance(489 / AGEING_SHARE, num_prefilling=0)
    put(queue, "late", 10)
    assert names(queue) == ["late", "long"]
    queue.advance(3 * 2 / AGEING_SHARE, num_prefilling=1)
    put(queue, "too late", 10)
    assert names(queue) == ["late", "long", "too late"]


def test_a_backlog_does_not_make_arrival_the_order() -> None:
    """With 100 waiting, what is done for one of them is a hundredth of what is done."""
    queue = WaitingQueue()
    for index in range(100):
        put(queue, f"old{index}", 500)
    queue.advance(100 * 400 / AGEING_SHARE, num_prefilling=0)
    put(queue, "short", 99)
    assert names(queue)[0] == "short"
    queue.advance(101 * 10 / AGEING_SHARE, num_prefilling=0)
    put(queue, "later", 99)
    assert names(queue).index("later") == 101


def test_priority_comes_before_everything() -> None:
    queue = WaitingQueue()
    put(queue, "batch", 1, priority=5)
    put(queue, "person", 900)
    assert names(queue) == ["person", "batch"]


def test_equal_work_keeps_the_order_of_arrival() -> None:
    queue = WaitingQueue()
    put(queue, "b", 8, at_s=1.0)
    put(queue, "a", 8, at_s=2.0)
    assert names(queue) == ["b", "a"]


def test_a_preempted_stream_comes_before_new_requests() -> None:
    """It has all its tokens to compute again, so by work alone every newcomer overtook it."""
    queue = WaitingQueue()
    put(queue, "short", 10)
    put(queue, "person", 10, priority=-1)
    stalled = Sequence(make_request("stalled", 400), arrival_s=0.0)
    stalled.num_preemptions = 1
    queue.add(stalled)
    assert names(queue) == ["person", "stalled", "short"]
