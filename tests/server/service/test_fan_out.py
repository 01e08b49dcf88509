"""Who is marked is flushed: once, in order, and without keeping the loop for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from server.service import fan_out as module
from server.service.fan_out import FanOut

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


class Item:
    def __init__(
        self, name: str, flushed: list[str], act: Callable[[], None] | None = None
    ) -> None:
        self._name = name
        self._flushed = flushed
        self._act = act

    def flush(self) -> None:
        self._flushed.append(self._name)
        if self._act is not None:
            self._act()


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_marks_of_one_turn_make_one_flush_in_the_order_of_the_first_marks() -> None:
    fan_out, flushed = FanOut(), list[str]()
    a, b = Item("a", flushed), Item("b", flushed)
    for item in (b, a, b, b, a):
        fan_out.mark(item)
    assert flushed == [], "not within the mark"
    await turns()
    assert flushed == ["b", "a"]
    fan_out.mark(a)
    await turns()
    assert flushed == ["b", "a", "a"]


async def test_what_is_marked_within_a_flush_comes_in_the_next_turn() -> None:
    fan_out, flushed = FanOut(), list[str]()
    late = Item("late", flushed)
    fan_out.mark(Item("first", flushed, lambda: fan_out.mark(late)))
    fan_out.mark(Item("second", flushed))
    await turns()
    assert flushed == ["first", "second", "late"]


async def test_a_long_flush_lets_others_run_and_then_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SLICE_S", 0.0)  # over after each item
    fan_out, flushed = FanOut(), list[str]()
    loop = asyncio.get_running_loop()
    items = [Item(f"{number}", flushed) for number in range(4)]
    for item in items:
        fan_out.mark(item)
    loop.call_soon(flushed.append, "other")
    loop.call_soon(fan_out.mark, items[0])  # it was flushed, and has more
    loop.call_soon(fan_out.mark, items[3])  # it was not: its place is kept
    await turns(8)
    assert flushed == ["0", "other", "1", "2", "3", "0"]


async def test_a_slice_is_short_however_many_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLICE_S", 0.004)
    fan_out, flushed = FanOut(), list[str]()
    for number in range(40):
        fan_out.mark(Item(f"{number}", flushed, lambda: time.sleep(0.001)))
    most, seen = 0, 0
    while len(flushed) < 40:
        await asyncio.sleep(0)
        most, seen = max(most, len(flushed) - seen), len(flushed)
    assert 1 <= most < 20
    assert flushed == [f"{number}" for number in range(40)]


async def test_one_that_raises_costs_nobody_else_the_flush() -> None:
    fan_out, flushed = FanOut(), list[str]()

    def fail() -> None:
        raise RuntimeError("a bug")

    told: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(str(context.get("exception"))))
    try:
        for item in (Item("a", flushed), Item("bad", flushed, fail), Item("c", flushed)):
            fan_out.mark(item)
        await turns()
    finally:
        loop.set_exception_handler(None)
    assert flushed == ["a", "bad", "c"]
    assert told == ["a bug"]


class Clocked:
    def __init__(self) -> None:
        self.ticks: list[float] = []
        self.has_ticked = asyncio.Event()

    def tick(self, now_s: float) -> None:
        self.ticks.append(now_s)
        if len(self.ticks) >= 2:
            self.has_ticked.set()


async def test_one_timer_tells_all_the_time_and_ends_with_the_last() -> None:
    fan_out = FanOut(tick_s=0.005)
    one, other = Clocked(), Clocked()
    fan_out.watch(one)
    fan_out.watch(other)
    async with asyncio.timeout(5):
        await one.has_ticked.wait()
        await other.has_ticked.wait()
    assert (
        one.ticks == other.ticks[: len(one.ticks)] or other.ticks == one.ticks[: len(other.ticks)]
    )
    assert one.ticks[1] - one.ticks[0] >= 0.004
    fan_out.unwatch(one)
    fan_out.unwatch(one)
    fan_out.unwatch(other)
    seen = len(one.ticks), len(other.ticks)
    await asyncio.sleep(0.03)
    assert (len(one.ticks), len(other.ticks)) == seen
    fan_out.watch(other)
    other.has_ticked.clear()
    async with asyncio.timeout(5):
        await other.has_ticked.wait()
    fan_out.unwatch(other)
