"""Conversations: always looked up together with their owner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from server.store.database import Database
from server.store.passage_index import record_index
from server.store.schema import Conversation, Message, User

_BATCH = 500
"""Conversations in one statement: databases bound the parameters of one."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a list."""

    conversation: Conversation
    num_messages: int


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
        self, user_id: str, course_id: str | None = None, *, limit: int = 200
    ) -> list[ConversationSummary]:
        """The user's conversations, the latest used first."""
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
            .limit(limit)
        )
        if course_id is not None:
            query = query.where(Conversation.course_id == course_id)
        async with self._database.session() as session:
            return [ConversationSummary(*row) for row in await session.execute(query)]

    async def delete(self, user_id: str, conversation_id: str) -> bool:
        """Deletes the user's conversation with all that hangs on it; False: there is none."""
        async with self._database.transaction() as session:
            deleted = await self._delete(
                session,
                select(Conversation.id).where(
                    Conversation.id == conversation_id, Conversation.user_id == user_id
                ),
            )
        return deleted > 0

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
            return await self._delete(
                session,
                select(Conversation.id)
                .where(or_(*is_old))
                .order_by(Conversation.updated_at)
                .limit(most),
            )

    async def delete_of_course(self, course_id: str) -> int:
        """Deletes every conversation about a course, with its records. Returns how many."""
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

    async def _delete(self, session: AsyncSession, query: Select[str]) -> int:
        """Deletes conversations, and their words, which no foreign key holds."""
        ids = (await session.scalars(query)).all()
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH]
            answers = await session.scalars(
                select(Message.id).where(
                    Message.conversation_id.in_(batch), Message.role == "assistant"
                )
            )
            await self._records.forget(session, answers.all())
            await session.execute(delete(Conversation).where(Conversation.id.in_(batch)))
        return len(ids)


def _is_older(now: datetime, days: int) -> ColumnElement[bool]:
    return Conversation.updated_at < now - timedelta(days=days)
