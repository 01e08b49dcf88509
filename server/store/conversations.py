"""Conversations: always looked up together with their owner."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import delete, func, select

from server.store.database import Database
from server.store.schema import Conversation, Message


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a list."""

    conversation: Conversation
    num_messages: int


class Conversations:
    """Repository of conversations. What belongs to somebody else does not exist here."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
            deleted = await session.scalar(
                delete(Conversation)
                .where(Conversation.id == conversation_id, Conversation.user_id == user_id)
                .returning(Conversation.id)
            )
            return deleted is not None
