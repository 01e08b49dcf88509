"""Drafts: the text so far of running answers, saved every little while so that a crash keeps it,
and the ends of answers that the database would not take at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from server.store.messages import Messages, Outcome, Partial

log = logging.getLogger(__name__)

_LAST_SAVE_S = 2.0
"""How long `stop` tries to store the ends that are left."""


class Draft:
    """One running answer. `add` is on the hot path: it appends to lists and sets an event."""

    __slots__ = (
        *("_dirty", "_num_told_before", "_texts", "_thoughts", "_token_ids"),
        *("answer_id", "has_end", "is_dirty", "num_told"),
    )

    def __init__(self, so_far: Partial, dirty: asyncio.Event) -> None:
        self.answer_id = so_far.answer_id
        self.num_told = len(so_far.text) if so_far.num_told is None else so_far.num_told
        """See `Message.num_told`."""
        self._num_told_before = self.num_told
        self.is_dirty = False
        self.has_end = False
        """How the answer ended is known, and stored or kept."""
        self._texts = [so_far.text]
        self._thoughts = [so_far.thinking or ""]
        self._token_ids = list(so_far.token_ids)
        self._dirty = dirty

    def add(self, text: str, token_ids: tuple[int, ...], thinking: str, num_told: int) -> None:
        """Appends what was generated since the last call: a `relay.OnOutput`."""
        self._texts.append(text)
        if thinking:
            self._thoughts.append(thinking)
        self._token_ids += token_ids
        self.num_told = self._num_told_before + num_told
        self.is_dirty = True
        self._dirty.set()

    @property
    def text(self) -> str:
        """The whole answer so far."""
        self._texts = ["".join(self._texts)]
        return self._texts[0]

    @property
    def thinking(self) -> str | None:
        """All that was thought so far; None: nothing."""
        self._thoughts = ["".join(self._thoughts)]
        return self._thoughts[0] or None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens of the answer so far."""
        return tuple(self._token_ids)

    @property
    def so_far(self) -> Partial:
        """All of it."""
        return Partial(self.answer_id, self.text, self.token_ids, self.thinking, self.num_told)


class Drafts:
    """All running answers, and the one task that saves those which changed: at most
    `interval_s` of text is lost, in one transaction for all. The same task tries again to store
    ends that could not be stored. There are never many of them: while the database takes
    nothing, no answer is begun. Owned by the event loop."""

    def __init__(self, messages: Messages, *, interval_s: float = 1.0) -> None:
        self._messages = messages
        self._interval_s = interval_s
        self._drafts: dict[str, Draft] = {}
        self._ends: dict[str, Outcome] = {}
        self._storing = asyncio.Lock()
        self._dirty = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    def start(self) -> None:
        """Starts saving."""
        self._task = asyncio.get_running_loop().create_task(self._keep_saving(), name="drafts")

    async def stop(self) -> None:
        """Stops saving, after a last attempt to store the ends that are left. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        try:
            async with asyncio.timeout(_LAST_SAVE_S):
                await self.store_ends()
        except (TimeoutError, SQLAlchemyError):
            # The next start marks these answers as interrupted, with the text saved last.
            log.error("the ends of %d answers could not be stored", len(self._ends))

    @contextmanager
    def write(self, so_far: Partial) -> Iterator[Draft]:
        """The draft of an answer that runs inside the block; starts with what it has already."""
        draft = Draft(so_far, self._dirty)
        self._drafts[draft.answer_id] = draft
        try:
            yield draft
        finally:
            del self._drafts[draft.answer_id]

    async def finish(self, draft: Draft, outcome: Outcome) -> None:
        """Stores how an answer ended. Raises SQLAlchemyError; then, and when it is cancelled,
        the end is kept and stored as soon as the database takes it."""
        draft.has_end = True
        try:
            await self._messages.finish(draft.answer_id, outcome)
        except BaseException:
            self._ends[draft.answer_id] = outcome
            self._dirty.set()
            raise

    async def store_ends(self) -> None:
        """Stores the ends that were kept. Raises SQLAlchemyError; what is left stays kept."""
        async with self._storing:  # once each: an answer may have gone on from its end since
            for answer_id, outcome in list(self._ends.items()):
                await self._messages.finish(answer_id, outcome)
                if self._ends.get(answer_id) is outcome:
                    del self._ends[answer_id]

    async def save(self) -> None:
        """Saves what changed since the last time. Raises SQLAlchemyError; then what changed
        still counts as not saved."""
        changed = [draft for draft in self._drafts.values() if draft.is_dirty]
        for draft in changed:
            draft.is_dirty = False
        try:
            await self._messages.save_partials([draft.so_far for draft in changed])
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
                await self.store_ends()
                self._is_failing = False
            except SQLAlchemyError:
                self._dirty.set()
                if not self._is_failing:  # told once, not every second
                    self._is_failing = True
                    log.exception("answers could not be saved; it is tried until it succeeds")
