"""Files wait their turn."""

from __future__ import annotations

import asyncio

import pytest

from server.app.materials.import_jobs import ImportedFile
from server.app.materials.import_queue import ImportQueue, Reading, Renewal

pytestmark = pytest.mark.anyio


def reading(course: str, name: str) -> Reading:
    return Reading(name, course, ImportedFile(name))


async def test_courses_take_turns() -> None:
    seen: list[str] = []
    done = asyncio.Event()

    async def read(one: Reading) -> None:
        seen.append(one.material_id)
        if len(seen) == 5:
            done.set()

    queue = ImportQueue(read, 1)
    for course, name in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")):
        await queue.put(reading(course, name))
    queue.start()
    await done.wait()
    await queue.stop()
    assert seen == ["a1", "b1", "c1", "a2", "a3"]


async def test_so_many_are_read_at_once() -> None:
    running = most = 0
    all_read = asyncio.Event()
    num_read = 0

    async def read(_one: Reading) -> None:
        nonlocal running, most, num_read
        running += 1
        most = max(most, running)
        for _ in range(3):
            await asyncio.sleep(0)
        running -= 1
        num_read += 1
        if num_read == 6:
            all_read.set()

    queue = ImportQueue(read, 2)
    queue.start()
    for n in range(6):
        await queue.put(reading("a", str(n)))
    await all_read.wait()
    await queue.stop()
    assert most == 2


async def test_the_queue_ends_after_what_is_read_and_puts_the_rest_off() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def read(one: Reading) -> None:
        began.set()
        await go_on.wait()
        seen.append(one.material_id)

    queue = ImportQueue(read, 1)
    await queue.put(reading("a", "1"))
    row, other_bytes = reading("a", "2"), reading("a", "3")
    other_bytes.renewal = Renewal()
    await queue.put(row)
    await queue.put(other_bytes)
    queue.start()
    await began.wait()
    stopping = asyncio.create_task(queue.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    go_on.set()
    await stopping
    await queue.stop()
    assert seen == ["1"]
    assert row.file.over.is_set()
    assert (row.file.state, row.file.error) == ("waiting", None)
    assert (other_bytes.file.state, other_bytes.file.error) == ("waiting", None)


async def test_what_is_dropped_is_not_read() -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    seen: list[tuple[str, bool]] = []
    ended = asyncio.Event()

    async def read(one: Reading) -> None:
        began.set()
        await go_on.wait()
        seen.append((one.material_id, one.is_dropped))
        if one.material_id == "3":
            ended.set()

    queue = ImportQueue(read, 1)
    for name in ("1", "2", "3"):
        await queue.put(reading("a", name))
    queue.start()
    await began.wait()
    await queue.drop(lambda one: one.material_id in ("1", "2"))
    go_on.set()
    await ended.wait()
    await queue.stop()
    assert seen == [("1", True), ("3", False)]


async def test_a_fault_of_ours_ends_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    async def read(one: Reading) -> None:
        if one.material_id == "1":
            raise RuntimeError("a fault")
        one.file.end("ready")

    queue = ImportQueue(read, 1)
    queue.start()
    first, second = reading("a", "1"), reading("a", "2")
    await queue.put(first)
    await queue.put(second)
    await second.file.over.wait()
    await queue.stop()
    assert first.file.error is not None
    assert first.file.error.code == "not_stored"
    assert "a fault" in caplog.text
