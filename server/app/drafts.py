"""Drafts: the text so far of running answers, saved every little while so that a crash keeps it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from server.store.messages import Messages, Partial

log = logging.getLogger(__name__)


class Draft:
    """One running answer. `add` is on the hot path: it appends to lists and sets an event."""

    __slots__ = ("_dirty", "_texts", "_token_ids", "answer_id", "is_dirty")

    def __init__(
        self, answer_id: str, text: str, token_ids: tuple[int, ...], dirty: asyncio.Event
    ) -> None:
        self.answer_id = answer_id
        self.is_dirty = False
        self._texts = [text]
        self._token_ids = list(token_ids)
        self._dirty = dirty

    def add(self, text: str, token_ids: tuple[int, ...]) -> None:
        """Appends what was generated since the last call."""
        self._texts.append(text)
        self._token_ids += token_ids
        self.is_dirty = True
        self._dirty.set()

    @property
    def text(self) -> str:
        """The whole answer so far."""
        self._texts = ["".join(self._texts)]
        return self._texts[0]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens of the answer so far."""
        return tuple(self._token_ids)


class Drafts:
    """All running answers, and the one task that saves those which changed: at most
    `interval_s` of text is lost, in one transaction for all. Owned by the event loop."""

    def __init__(self, messages: Messages, *, interval_s: float = 1.0) -> None:
        self._messages = messages
        self._interval_s = interval_s
        self._drafts: dict[str, Draft] = {}
        self._dirty = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts saving."""
        self._task = asyncio.get_running_loop().create_task(self._keep_saving(), name="drafts")

    async def stop(self) -> None:
        """Stops saving. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @contextmanager
    def write(
        self, answer_id: str, text: str = "", token_ids: tuple[int, ...] = ()
    ) -> Iterator[Draft]:
        """The draft of an answer that runs inside the block; starts with what it has already."""
        draft = Draft(answer_id, text, token_ids, self._dirty)
        self._drafts[answer_id] = draft
        try:
            yield draft
        finally:
            del self._drafts[answer_id]

    async def save(self) -> None:
        """Saves what changed since the last time. Raises SQLAlchemyError; then what changed
        still counts as not saved."""
        changed = [draft for draft in self._drafts.values() if draft.is_dirty]
        for draft in changed:
            draft.is_dirty = False
        try:
            await self._messages.save_partials(
                [Partial(draft.answer_id, draft.text, draft.token_ids) for draft in changed]
            )
        except SQLAlchemyError:
            for draft in changed:
                draft.is_dirty = True
            self._dirty.set()
            raise

    async def _keep_saving(self) -> None:
        while True:
            await self._dirty.wait()
            await asyncio.sleep(self._interval_s)
            self._dirty.clear()
            try:
                await self.save()
            except SQLAlchemyError:
                # The answer goes on; its end is saved by its own task, and that failure is told.
                log.exception("the text so far of running answers could not be saved")
