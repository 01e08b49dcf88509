"""Drafts are saved together, and saving that fails is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy.exc import OperationalError

from server.app.drafts import Drafts
from server.store.database import Database, sqlite_url
from server.store.messages import GoneError, Messages, Outcome, Partial
from server.store.schema import MessageState

pytestmark = pytest.mark.anyio

END = Outcome(MessageState.FINISHED, "stop", {"type": "eos"}, "all of it")
NEW = Partial("a", "", ())


class Saved:
    """Stands for the store; fails `num_failures` times first."""

    def __init__(self, num_failures: int = 0) -> None:
        self.batches: list[list[Partial]] = []
        self.is_saved = asyncio.Event()
        self.num_failures = num_failures
        self.ends: dict[str, Outcome] = {}

    async def finish(self, answer_id: str, outcome: Outcome) -> None:
        if self.num_failures:
            self.num_failures -= 1
            raise OperationalError("UPDATE", None, Exception("disk full"))
        self.ends[answer_id] = outcome
        self.is_saved.set()

    async def save_partials(self, partials: Sequence[Partial]) -> None:
        if self.num_failures:
            self.num_failures -= 1
            raise OperationalError("UPDATE", None, Exception("disk full"))
        if partials:
            self.batches.append(list(partials))
            self.is_saved.set()


async def test_all_changed_drafts_are_saved_in_one_batch() -> None:
    saved = Saved()
    drafts = Drafts(cast(Messages, saved))
    begun = Partial("b", "old ", (1,), "Hm.", 7)
    with drafts.write(NEW) as a, drafts.write(begun) as b, drafts.write(Partial("c", "", ())):
        a.add("x", (7,), "", 1)
        b.add("y", (8, 9), "", 1)
        await drafts.save()
        await drafts.save()
        a.add("", (10,), "So.", 4)
        await drafts.save()
    await drafts.save()
    assert saved.batches == [
        [Partial("a", "x", (7,), None, 1), Partial("b", "old y", (1, 8, 9), "Hm.", 8)],
        [Partial("a", "x", (7, 10), "So.", 4)],
    ]


async def test_a_draft_is_saved_by_itself_and_again_after_a_failure() -> None:
    saved = Saved(num_failures=2)
    drafts = Drafts(cast(Messages, saved), interval_s=0.01)
    drafts.start()
    with drafts.write(NEW) as draft:
        draft.add("x", (1,), "", 1)
        async with asyncio.timeout(5):
            await saved.is_saved.wait()
    await drafts.stop()
    await drafts.stop()
    assert saved.batches == [[Partial("a", "x", (1,), None, 1)]]


async def test_an_end_that_could_not_be_stored_is_stored_later() -> None:
    """While the database took nothing, an answer ended; its row stayed `running` until the next
    start, and could neither be read whole nor continued."""
    saved = Saved(num_failures=3)
    drafts = Drafts(cast(Messages, saved), interval_s=0.01)
    drafts.start()
    with drafts.write(NEW) as draft, pytest.raises(OperationalError):
        await drafts.finish(draft, END)
    assert draft.has_end
    async with asyncio.timeout(5):
        await saved.is_saved.wait()
    assert saved.ends == {"a": END}
    await drafts.stop()


async def test_stopping_stores_the_ends_that_are_left_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    saved = Saved(num_failures=1)
    drafts = Drafts(cast(Messages, saved))
    with drafts.write(NEW) as draft, pytest.raises(OperationalError):
        await drafts.finish(draft, END)
    await drafts.stop()
    assert saved.ends == {"a": END}

    async def hang(answer_id: str, outcome: Outcome) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(saved, "finish", hang)
    monkeypatch.setattr("server.app.drafts._LAST_SAVE_S", 0.05)
    with drafts.write(Partial("b", "", ())) as draft:
        ending = asyncio.create_task(drafts.finish(draft, END))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait([ending])
    async with asyncio.timeout(2):
        await drafts.stop()
    assert "ends of 1 answers" in caplog.text


async def test_an_end_of_a_deleted_answer_holds_up_no_other(tmp_path: Path) -> None:
    """A continuation that brought nothing gives the answer back: there may be none by then."""
    database = Database(sqlite_url(tmp_path / "s.db"))
    await database.open()
    messages = Messages(database)
    back = Outcome(MessageState.FINISHED, "length", {"type": "max_tokens"}, takes_back=True)
    await messages.finish("deleted", back)
    with pytest.raises(GoneError):
        await messages.undo("deleted", key="k")
    await database.close()


async def test_a_kept_end_that_was_stored_meanwhile_is_not_stored_again() -> None:
    """Both who settles and who saves in the background store what was kept."""
    saved = Saved(num_failures=2)
    drafts = Drafts(cast(Messages, saved))
    for name in ("a", "b"):
        with drafts.write(Partial(name, "", ())) as draft, suppress(OperationalError):
            await drafts.finish(draft, END)
    calls: list[str] = []

    async def finish(answer_id: str, outcome: Outcome) -> None:
        calls.append(answer_id)
        await asyncio.sleep(0)  # as a store does, it lets the others go on

    saved.finish = finish  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(drafts.store_ends())
    assert calls == ["a", "b"]
