"""Who holds which slot, and what goes to the GPU when."""

from __future__ import annotations

from engine.execution.request_slots import RequestSlots
from engine.kv.block_pool import BlockId
from engine.scheduling.sequence import Sequence
from engine.types import GenerationRequest, RequestId, SamplingParams


def sequence(name: str, blocks: list[int]) -> Sequence:
    request = GenerationRequest(RequestId(name), (1, 2, 3), SamplingParams())
    made = Sequence(request, arrival_s=0.0)
    made.table.extend([BlockId(block) for block in blocks])
    return made


def test_only_new_blocks_are_uploaded() -> None:
    slots, entered = RequestSlots(2, max_blocks=10), list[int]()

    def on_enter(slot: int, _sequence: Sequence) -> None:
        entered.append(slot)

    first, second = sequence("a", [7, 8]), sequence("b", [9])
    assert slots.enter((first, second), on_enter) == [0, 1]
    assert slots.take_entries() == ([0, 1, 10], [7, 8, 9])
    assert slots.enter([first], on_enter) == [0]
    assert slots.take_entries() == ([], [])
    first.table.extend([BlockId(3)])
    slots.enter([first], on_enter)
    assert slots.take_entries() == ([2], [3])
    assert entered == [0, 1]


def test_a_slot_that_was_left_is_given_away_with_all_its_blocks_anew() -> None:
    slots, entered = RequestSlots(1, max_blocks=4), list[tuple[int, str]]()

    def on_enter(slot: int, one: Sequence) -> None:
        entered.append((slot, one.request_id))

    slots.enter([sequence("a", [5, 6])], on_enter)
    slots.take_entries()
    assert slots.leave(RequestId("a")) == 0
    assert slots.leave(RequestId("a")) is None
    slots.enter([sequence("b", [6])], on_enter)
    assert slots.take_entries() == ([0], [6])
    assert entered == [(0, "a"), (0, "b")]
