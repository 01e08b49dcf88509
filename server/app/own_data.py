"""`OwnData`: all that is kept of one person, as JSON lines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from server.app.records import message_json, time_json
from server.service.auth import UserId
from server.store.conversations import Conversations
from server.store.enrolments import Enrolments
from server.store.messages import Messages
from server.store.users import Users

_MOST_CONVERSATIONS = 1_000_000


class OwnData:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        users: Users,
        enrolments: Enrolments,
        conversations: Conversations,
        messages: Messages,
    ) -> None:
        self._users = users
        self._enrolments = enrolments
        self._conversations = conversations
        self._messages = messages

    async def lines(self, user: UserId) -> AsyncIterator[bytes]:
        """`person`, each `enrolment`, then each `conversation` (the latest used first) with its
        `message` lines, told apart by `kind`. A password is no part of it, nor are token ids."""
        yield _lines([await self._person(user)])
        courses = await self._enrolments.courses_of(user)
        yield _lines(
            [
                {
                    "kind": "enrolment",
                    "course": found.course.id,
                    "title": found.course.title,
                    "role": found.enrolment.role,
                    "pseudonym": found.enrolment.pseudonym,
                    "joined_at": time_json(found.enrolment.joined_at),
                }
                for found in courses
                if found.enrolment is not None
            ]
        )
        summaries = await self._conversations.of_user(user, limit=_MOST_CONVERSATIONS)
        for conversation in (summary.conversation for summary in summaries):
            messages = await self._messages.of_conversation(conversation.id)
            ids = [message.id for message in messages]
            passages = await self._messages.passages(ids)
            feedback = await self._messages.feedback(user, ids)
            lines: list[dict[str, Any]] = [
                {
                    "kind": "conversation",
                    "id": conversation.id,
                    "course": conversation.course_id,
                    "title": conversation.title,
                    "created_at": time_json(conversation.created_at),
                    "updated_at": time_json(conversation.updated_at),
                }
            ]
            lines += [
                {
                    "kind": "message",
                    "conversation": conversation.id,
                    **message_json(message, passages.get(message.id, ()), feedback.get(message.id)),
                }
                for message in messages
            ]
            yield _lines(lines)

    async def _person(self, user: UserId) -> dict[str, Any]:
        row = await self._users.get(user)
        return {
            "kind": "person",
            "id": user,
            "role": row.role if row else "guest",
            "name": row.name if row else None,
            "login": row.login if row else None,
            "created_at": time_json(row.created_at) if row else None,
        }


def _lines(values: list[dict[str, Any]]) -> bytes:
    return msgspec.json.Encoder().encode_lines(values)
