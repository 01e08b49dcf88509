"""Conversations: always looked up together with their owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from server.store.analysis import QueryUnit, fold
from server.store.answer_values import GoneError
from server.store.column_types import utc_now
from server.store.database import Database
from server.store.ids import batches
from server.store.passage_index import record_index
from server.store.schema import Conversation, Course, Message, MessageState, User

_MOST_FOUND = 2000
"""Conversations that a search looks at, the newest ones."""
_SHARED: dict[str, Any] = {"read": True, "key_share": True}
"""For a row that may be changed by others meanwhile, and not be deleted."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a list."""

    conversation: Conversation
    num_messages: int

    @property
    def place(self) -> ListPlace:
        """Where in its user's list it stands."""
        return ListPlace(self.conversation.updated_at, self.conversation.id)


@dataclass(frozen=True, slots=True)
class ListPlace:
    """A place in a list by last use: it stays where it is when what stood there is gone."""

    updated_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class ConversationHit:
    """A conversation that a search has found. `question` and `answer` hold the words, both of the
    newest such pair; None where only the title does."""

    summary: ConversationSummary
    question: Message | None = None
    answer: Message | None = None


class Conversations:
    """Repository of conversations. What belongs to somebody else does not exist here."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._records = record_index(database)

    async def get(self, user_id: str, conversation_id: str) -> Conversation | None:
        """The user's conversation with this id."""
        async with self._database.session() as session:
            return await session.scalar(
                select(Conversation).where(
                    Conversation.id == conversation_id, Conversation.user_id == user_id
                )
            )

    async def of_user(
        self,
        user_id: str,
        course_id: str | None = None,
        *,
        before: ListPlace | None = None,
        limit: int = 200,
    ) -> list[ConversationSummary]:
        """The user's conversations, the latest used first, `before` excluded."""
        async with self._database.session() as session:
            query = _summaries(user_id, course_id, before).limit(limit)
            return [ConversationSummary(*row) for row in await session.execute(query)]

    async def search(
        self,
        user_id: str,
        text: str,
        units: Sequence[QueryUnit],
        *,
        course_id: str | None = None,
        before: ListPlace | None = None,
        limit: int = 50,
    ) -> list[ConversationHit]:
        """The user's conversations whose title holds `text`, or in which a question with its
        answer holds all `units`; the latest used first, `before` excluded."""
        async with self._database.session() as session:
            found = await self._records.search_own(
                session, user_id, units, course_id=course_id, limit=_MOST_FOUND
            )
            titled = await _titled(session, user_id, course_id, fold(text))
            query = _summaries(user_id, course_id, before).where(
                Conversation.id.in_({*found, *titled})
            )
            rows = (await session.execute(query.limit(limit))).all()
            summaries = [ConversationSummary(*row) for row in rows]
            answers = [found.get(summary.conversation.id) for summary in summaries]
            pairs = await _pairs(session, [id for id in answers if id is not None])
            return [
                ConversationHit(summary, *pairs.get(answer_id or "", (None, None)))
                for summary, answer_id in zip(summaries, answers, strict=True)
            ]

    async def summary(self, user_id: str, conversation_id: str) -> ConversationSummary | None:
        """One conversation of the user's list."""
        query = _summaries(user_id, None, None).where(Conversation.id == conversation_id)
        async with self._database.session() as session:
            rows = await session.execute(query)
            return next((ConversationSummary(*row) for row in rows), None)

    async def carry(
        self, user_id: str, *, course_id: str, title: str, carried_from: str, client_id: str
    ) -> tuple[str, str]:
        """Stores a new conversation that begins with an empty summary, `running`, of another one
        up to the message `carried_from`. Returns the ids of both. Raises GoneError."""
        async with self._database.transaction() as session:
            conversation = Conversation(
                user_id=user_id, course_id=course_id, title=title, carried_from=carried_from
            )
            await put_conversation(session, conversation)
            summary = Message(
                conversation_id=conversation.id,
                role="summary",
                state=MessageState.RUNNING,
                client_id=client_id,
            )
            session.add(summary)
            await session.flush()
            return conversation.id, summary.id

    async def summarise_again(self, summary_id: str, *, client_id: str) -> None:
        """Marks a summary that came to nothing as `running` again, asked for under `client_id`.
        Raises GoneError."""
        async with self._database.transaction() as session:
            found = await session.scalar(
                update(Message)
                .where(Message.id == summary_id)
                .values(
                    state=MessageState.RUNNING,
                    text="",
                    thinking=None,
                    client_id=client_id,
                    updated_at=utc_now(),
                )
                .returning(Message.id)
            )
            if found is None:
                raise GoneError("conversation")

    async def source_of(self, conversation: Conversation) -> Conversation | None:
        """The conversation of the same user that this one carries on, if it is still there."""
        if conversation.carried_from is None:
            return None
        async with self._database.session() as session:
            return await session.scalar(
                select(Conversation)
                .join(Message, Message.conversation_id == Conversation.id)
                .where(
                    Message.id == conversation.carried_from,
                    Conversation.user_id == conversation.user_id,
                )
            )

    async def carried_on(self, conversation: Conversation) -> list[Conversation]:
        """The conversations of the same user that carry this one on, oldest first."""
        messages = select(Message.id).where(Message.conversation_id == conversation.id)
        async with self._database.session() as session:
            rows = await session.scalars(
                select(Conversation)
                .where(
                    Conversation.user_id == conversation.user_id,
                    Conversation.carried_from.in_(messages),
                )
                .order_by(Conversation.created_at, Conversation.id)
            )
            return list(rows)

    async def rename(self, user_id: str, conversation_id: str, title: str) -> bool:
        """Gives the user's conversation another title; when it was last used stays. False: there
        is none."""
        async with self._database.transaction() as session:
            renamed = await session.scalars(
                update(Conversation)
                .where(Conversation.id == conversation_id, Conversation.user_id == user_id)
                .values(title=title)
                .returning(Conversation.id)
            )
            return renamed.one_or_none() is not None

    async def delete(self, user_id: str, conversation_id: str) -> bool:
        """Deletes the user's conversation with all that hangs on it; False: there is none."""
        async with self._database.transaction() as session:
            deleted = await self._delete(
                session,
                select(Conversation.id).where(
                    Conversation.id == conversation_id, Conversation.user_id == user_id
                ),
            )
        return bool(deleted)

    async def delete_older(
        self, days: Mapping[str | None, int], now: datetime, *, most: int
    ) -> int:
        """Deletes up to `most` conversations that were last used more than so many days ago, by
        their course's id; under None stands what holds for courses that are not named. Returns
        how many."""
        named = [course_id for course_id in days if course_id is not None]
        is_old = [
            and_(Conversation.course_id == course_id, _is_older(now, days[course_id]))
            for course_id in named
        ]
        if (otherwise := days.get(None)) is not None:
            is_unnamed = or_(Conversation.course_id.is_(None), Conversation.course_id.not_in(named))
            is_old.append(and_(is_unnamed, _is_older(now, otherwise)))
        if not is_old:
            return 0
        async with self._database.transaction() as session:
            deleted = await self._delete(
                session,
                select(Conversation.id)
                .where(or_(*is_old))
                .order_by(Conversation.updated_at)
                .limit(most),
            )
        return len(deleted)

    async def delete_of_course(self, course_id: str) -> Sequence[str]:
        """Deletes every conversation about a course, with its records. Returns their ids."""
        async with self._database.transaction() as session:
            return await self._delete(
                session, select(Conversation.id).where(Conversation.course_id == course_id)
            )

    async def erase_user(self, user_id: str) -> None:
        """Deletes a user with all that is theirs, conversations and their records included.
        Materials that they uploaded stay. Unknown users are ignored."""
        async with self._database.transaction() as session:
            await self._delete(
                session, select(Conversation.id).where(Conversation.user_id == user_id)
            )
            await session.execute(delete(User).where(User.id == user_id))

    async def _delete(self, session: AsyncSession, query: Select[str]) -> Sequence[str]:
        """Deletes conversations, and their words, which no foreign key holds. Returns their
        ids."""
        # Locked before their words and their messages, as by who writes into them.
        ids = (await session.scalars(query.with_for_update())).all()
        for batch in batches(ids):
            answers = await session.scalars(
                select(Message.id).where(
                    Message.conversation_id.in_(batch), Message.role == "assistant"
                )
            )
            await self._records.forget(session, answers.all())
            await session.execute(delete(Conversation).where(Conversation.id.in_(batch)))
        return ids


async def put_conversation(session: AsyncSession, conversation: Conversation) -> None:
    """Stores a new conversation. Raises GoneError where its user or its course is gone."""
    # Locked: neither goes before the transaction ends.
    course_id = conversation.course_id
    if await session.get(User, conversation.user_id, with_for_update=_SHARED) is None:
        raise GoneError("user")
    if course_id is not None:
        course = await session.get(Course, course_id, with_for_update=_SHARED)
        if course is None:
            raise GoneError("course")
    session.add(conversation)
    await session.flush()


def _summaries(
    user_id: str, course_id: str | None, before: ListPlace | None
) -> Select[Conversation, int]:
    num_messages = (
        select(func.count())
        .where(Message.conversation_id == Conversation.id)
        .correlate(Conversation)
        .scalar_subquery()
    )
    query = (
        select(Conversation, num_messages)
        .where(Conversation.user_id == user_id)
        .order_by(Conversation.updated_at.desc(), Conversation.id.desc())
    )
    if course_id is not None:
        query = query.where(Conversation.course_id == course_id)
    if before is not None:
        query = query.where(
            or_(
                Conversation.updated_at < before.updated_at,
                and_(Conversation.updated_at == before.updated_at, Conversation.id < before.id),
            )
        )
    return query


async def _titled(
    session: AsyncSession, user_id: str, course_id: str | None, folded: str
) -> list[str]:
    """Ids of conversations whose title holds the folded text. Compared here: databases fold by
    rules of their own."""
    if not folded.strip():
        return []
    query = select(Conversation.id, Conversation.title).where(Conversation.user_id == user_id)
    if course_id is not None:
        query = query.where(Conversation.course_id == course_id)
    rows = await session.execute(query.order_by(Conversation.updated_at.desc()).limit(_MOST_FOUND))
    return [id for id, title in rows if folded in fold(title)]


async def _pairs(
    session: AsyncSession, answer_ids: Sequence[str]
) -> dict[str, tuple[Message, Message]]:
    """Question and answer, by the answer's id."""
    question = aliased(Message)
    rows = await session.execute(
        select(question, Message)
        .join(question, question.id == Message.parent_id)
        .where(Message.id.in_(answer_ids))
    )
    return {answer.id: (asked, answer) for asked, answer in rows}


def _is_older(now: datetime, days: int) -> ColumnElement[bool]:
    return Conversation.updated_at < now - timedelta(days=days)
