"""Records: every ended answer of a course with its question, for its teachers.

A record is found by what became of it, by when, by what it cites and by its words. These are kept
by `RecordIndex`, which a background task fills: an answer is found by its words some seconds after
its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    and_,
    case,
    cast,
    column,
    false,
    func,
    or_,
    select,
    table,
    true,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from server.store.analysis import asked_units
from server.store.database import Database
from server.store.passage_index import record_index
from server.store.schema import (
    Conversation,
    Enrolment,
    Feedback,
    Message,
    MessagePassage,
    MessageState,
    User,
)

MOST_FOUND = 2000
"""Records that a search for words looks at, the newest ones."""
CUT_TYPES = ("max_tokens", "context_window", "kv_capacity")
"""Finish types of answers that a limit cut."""
WHOLE_TYPES = ("eos", "stop_string", "stop_token")
"""Finish types of answers that ended by themselves."""

_Question = aliased(Message, name="question")


class RecordKind(StrEnum):
    """What a teacher looks for; a record can be of several kinds."""

    CUT = "cut"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    ERROR = "error"
    NOT_FOUND = "not_found"
    NO_SUPPORT = "no_support"
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """All that is set must hold; of `kinds` any. `since` and `until` are moments, the end
    excluded; `person` is a part of a name, `pseudonym` a whole one."""

    course_id: str
    kinds: Collection[RecordKind] = ()
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    material_id: str | None = None
    person: str | None = None
    pseudonym: str | None = None


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asked. `pseudonym` and `course_role` are None for who is not in the course."""

    user_id: str
    name: str | None
    account_role: str
    course_role: str | None
    pseudonym: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """An answer, its question, what it was made from and what its reader thought of it."""

    question: Message
    answer: Message
    asker: Asker
    feedback: Feedback | None
    kinds: frozenset[RecordKind]
    passages: Sequence[MessagePassage] = ()


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """`matching` counts what a filter leaves, `total` what it leaves without its `kinds`, `kinds`
    splits that up. `is_cut`: more records hold the words than a search looks at."""

    total: int
    matching: int
    kinds: Mapping[RecordKind, int] = field(default_factory=dict)
    is_cut: bool = False


class Records:
    """Repository of records; reads only, but for the index of their words."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._index = record_index(database)

    # Reading.

    async def page(
        self, filter: RecordFilter, *, before: str | None = None, limit: int = 50
    ) -> list[Record]:
        """Up to `limit` records, the newest first, older than the one with the id `before`."""
        async with self._database.session() as session:
            found = await self._found(session, filter)
            query = _records().where(*_conditions(filter, found))
            if before is not None:
                query = query.where(Message.id < before)
            return await _load(session, query.order_by(Message.id.desc()).limit(limit))

    async def counts(self, filter: RecordFilter) -> RecordCounts:
        """How many records a filter leaves, of which kinds."""
        async with self._database.session() as session:
            found = await self._found(session, filter)
            every = replace(filter, kinds=())
            conditions = [_any_kind(filter.kinds), *(_KINDS[kind] for kind in RecordKind)]
            columns: list[Any] = [func.count(), *map(_count_of, conditions)]
            query = _joined(select(*columns)).where(*_conditions(every, found))
            total, matching, *kinds = (await session.execute(query)).one()
        is_cut = found is not None and len(found) >= MOST_FOUND
        counted = {kind: int(n or 0) for kind, n in zip(RecordKind, kinds, strict=True)}
        return RecordCounts(total, int(matching or 0), counted, is_cut)

    async def every(self, filter: RecordFilter, *, chunk: int = 200) -> AsyncIterator[list[Record]]:
        """All records that a filter leaves, the newest first, in chunks. Nothing is held open
        between two chunks; answers that end meanwhile are newer, and are not among them."""
        before: str | None = None
        while records := await self.page(filter, before=before, limit=chunk):
            yield records
            before = records[-1].answer.id

    async def get(self, answer_id: str) -> tuple[Record, str | None] | None:
        """One record and its course's id, whatever the course."""
        query = _records().where(Message.id == answer_id, *_IS_RECORD)
        async with self._database.session() as session:
            records = await _load(session, query)
            if not records:
                return None
            conversation = await session.get_one(Conversation, records[0].answer.conversation_id)
            return records[0], conversation.course_id

    async def _found(self, session: AsyncSession, filter: RecordFilter) -> list[str] | None:
        """Ids of the newest answers that hold the filter's words; None: it asks for none."""
        if filter.text is None or not filter.text.strip():
            return None
        return await self._index.search(
            session, filter.course_id, asked_units(filter.text), limit=MOST_FOUND
        )

    # The index of their words.

    async def without_words(self) -> list[str]:
        """Ids of ended answers of courses that the index does not hold."""
        name = "record_fts" if self._database.is_sqlite else "record_words"
        indexed = table(name, column("answer_id"))
        query = (
            select(Message.id)
            .join(Conversation, Conversation.id == Message.conversation_id)
            .where(
                Conversation.course_id.is_not(None),
                *_IS_RECORD,
                Message.id.not_in(select(indexed.c.answer_id)),
            )
            .order_by(Message.id)
        )
        async with self._database.session() as session:
            return list(await session.scalars(query))

    async def texts(self, answer_ids: Sequence[str]) -> list[tuple[str, str, str]]:
        """(id, course, question and answer) of answers that are there and have ended."""
        query = (
            select(Message.id, Conversation.course_id, _Question.text, Message.text)
            .join(Conversation, Conversation.id == Message.conversation_id)
            .join(_Question, _Question.id == Message.parent_id)
            .where(Message.id.in_(answer_ids), Conversation.course_id.is_not(None), *_IS_RECORD)
        )
        async with self._database.session() as session:
            rows = await session.execute(query)
            return [(id, course or "", f"{asked}\n{said}") for id, course, asked, said in rows]

    async def put_words(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Stores (answer, course, words). Answers that were deleted meanwhile are left out."""
        async with self._database.transaction() as session:
            ids = [answer_id for answer_id, _, _ in rows]
            there = set(await session.scalars(select(Message.id).where(Message.id.in_(ids))))
            for answer_id, course_id, words in rows:
                if answer_id in there:
                    await self._index.add(session, answer_id, course_id, words)


_IS_RECORD = (Message.role == "assistant", Message.state != MessageState.RUNNING)
_IS_SUPPORTED = (
    select(MessagePassage.message_id)
    .where(MessagePassage.message_id == Message.id, MessagePassage.marks.is_not(None))
    .exists()
)
_KINDS: dict[RecordKind, ColumnElement[bool]] = {
    RecordKind.CUT: Message.finish_type.in_(CUT_TYPES),
    RecordKind.CANCELLED: Message.state == MessageState.STOPPED,
    RecordKind.INTERRUPTED: Message.state == MessageState.INTERRUPTED,
    RecordKind.ERROR: Message.state == MessageState.ERROR,
    RecordKind.NOT_FOUND: Message.not_found == true(),
    # The same as `records.has_no_support`, in the database.
    RecordKind.NO_SUPPORT: and_(
        Message.finish_type.is_not(None),
        Message.citations.is_not(None),
        func.trim(Message.text) != "",
        ~_IS_SUPPORTED,
    ),
    RecordKind.UP: Feedback.value == "up",
    RecordKind.DOWN: Feedback.value == "down",
}


def _any_kind(kinds: Collection[RecordKind]) -> ColumnElement[bool]:
    return or_(*(_KINDS[kind] for kind in kinds)) if kinds else true()


def _count_of(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((condition, 1), else_=0))


def _records() -> Select[*tuple[Any, ...]]:
    kinds = [case((_KINDS[kind], 1), else_=0) for kind in RecordKind]
    return _joined(select(Message, _Question, Feedback, User, Enrolment, *kinds))


def _joined(query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
    """The tables of a record. Only its asker can judge an answer, once: no row is doubled."""
    return (
        query.select_from(Message)
        .join(Conversation, Conversation.id == Message.conversation_id)
        .join(_Question, _Question.id == Message.parent_id)
        .join(User, User.id == Conversation.user_id)
        .outerjoin(
            Enrolment,
            and_(
                Enrolment.course_id == Conversation.course_id,
                Enrolment.user_id == Conversation.user_id,
            ),
        )
        .outerjoin(
            Feedback,
            and_(Feedback.message_id == Message.id, Feedback.user_id == Conversation.user_id),
        )
    )


def _conditions(filter: RecordFilter, found: Sequence[str] | None) -> list[ColumnElement[bool]]:
    conditions = [Conversation.course_id == filter.course_id, *_IS_RECORD]
    if filter.kinds:
        conditions.append(_any_kind(filter.kinds))
    if filter.since is not None:
        conditions.append(Message.created_at >= filter.since)
    if filter.until is not None:
        conditions.append(Message.created_at < filter.until)
    if filter.material_id is not None:
        conditions.append(
            select(MessagePassage.message_id)
            .where(
                MessagePassage.message_id == Message.id,
                MessagePassage.material_id == filter.material_id,
                MessagePassage.is_cited == true(),
            )
            .exists()
        )
    if filter.person is not None:
        conditions.append(cast(User.name, String).icontains(filter.person, autoescape=True))
    if filter.pseudonym is not None:
        conditions.append(Enrolment.pseudonym == filter.pseudonym)
    if found is not None:
        conditions.append(Message.id.in_(found) if found else false())
    return conditions


async def _load(session: AsyncSession, query: Select[*tuple[Any, ...]]) -> list[Record]:
    rows = (await session.execute(query)).all()
    passages: dict[str, list[MessagePassage]] = {}
    stored = await session.scalars(
        select(MessagePassage)
        .where(MessagePassage.message_id.in_([row[0].id for row in rows]))
        .order_by(MessagePassage.message_id, MessagePassage.n)
    )
    for passage in stored:
        passages.setdefault(passage.message_id, []).append(passage)
    return [
        Record(
            question,
            answer,
            Asker(
                user.id,
                user.name,
                user.role,
                enrolment.role if enrolment else None,
                enrolment.pseudonym if enrolment else None,
            ),
            feedback,
            frozenset(kind for kind, holds in zip(RecordKind, kinds, strict=True) if holds),
            passages.get(answer.id, ()),
        )
        for answer, question, feedback, user, enrolment, *kinds in rows
    ]
