"""Passages as answers were given them, looked up for who was shown them."""

from __future__ import annotations

from sqlalchemy import select

from server.store.database import Database
from server.store.schema import Conversation, Message, MessagePassage


class ShownPassages:
    """Repository; reads only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, user_id: str, material_id: str, passage_id: str) -> MessagePassage | None:
        """A material's passage as the newest of the user's answers that has it was given it."""
        async with self._database.session() as session:
            return await session.scalar(
                select(MessagePassage)
                .join(Message, Message.id == MessagePassage.message_id)
                .join(Conversation, Conversation.id == Message.conversation_id)
                .where(
                    Conversation.user_id == user_id,
                    MessagePassage.passage_id == passage_id,
                    MessagePassage.material_id == material_id,
                )
                .order_by(MessagePassage.message_id.desc())
                .limit(1)
            )
