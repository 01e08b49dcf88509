"""Messages: questions and answers, from the first row to how the answer ended.

An answer's row exists, as `running`, before anything is generated; it is brought up to date
while the text grows, and closed by `finish`. What was still running when the process died is
closed by `interrupt_running` at the next start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from server.store.answer_values import (
    GoneError,
    Opened,
    Outcome,
    Partial,
    PassageSnapshot,
    Prepared,
)
from server.store.column_types import utc_now
from server.store.conversations import put_conversation
from server.store.database import Database
from server.store.ids import batches
from server.store.schema import (
    Conversation,
    Feedback,
    Message,
    MessagePassage,
    MessageState,
    Table,
    User,
)
from server.store.seams import (
    AnswerChangedError,
    NoSeamError,
    begin_part,
    locked,
    put_marks,
    take_back_part,
)

__all__ = [
    "INTERRUPTED_DETAIL",
    "AnswerChangedError",
    "GoneError",
    "Messages",
    "NoSeamError",
    "Opened",
    "Outcome",
    "Partial",
    "PassageSnapshot",
    "Prepared",
]

INTERRUPTED_DETAIL = {"type": "interrupted"}
"""Finish detail of an answer whose process ended before it did."""
_OPTIONAL = (
    *("text", "thinking", "token_ids", "num_told", "usage", "timing", "max_tokens", "context"),
)
"""What an `Outcome` may leave as it is stored."""


class Messages:
    """Repository of messages. Rows that it returns are detached: read them, never change them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._on_end: Callable[[str], None] = _ignore

    def on_end(self, callback: Callable[[str], None]) -> None:
        """Calls `callback` with the id of each answer whose end has just been stored."""
        self._on_end = callback

    # Writing, in the order of an answer's life.

    async def open_question(
        self,
        user_id: str,
        text: str,
        *,
        course_id: str | None,
        conversation_id: str | None = None,
        parent_id: str | None = None,
        follow_latest: bool = True,
        title: str = "",
        client_id: str | None = None,
        is_guest: bool = True,
    ) -> Opened:
        """Stores a question and its empty answer, in a new conversation if none is named. A guest
        becomes a user with the first question.

        Without `parent_id` the question follows the conversation's latest answer, or, with
        `follow_latest` false, starts a branch at the top. Raises GoneError."""
        async with self._database.transaction() as session:
            if conversation_id is None:
                if is_guest:
                    await self._put_guest(session, user_id)
                conversation = Conversation(user_id=user_id, course_id=course_id, title=title)
                await put_conversation(session, conversation)
                conversation_id = conversation.id
            else:
                # The update locks the conversation, so that two questions at once follow each
                # other also where writers do not take turns.
                await _touch(session, conversation_id)
                if parent_id is None and follow_latest:
                    parent_id = await _latest_answer(session, conversation_id)
            question = Message(
                conversation_id=conversation_id, parent_id=parent_id, role="user", text=text
            )
            session.add(question)
            await session.flush()
            return await _open_answer(session, question, client_id)

    async def open_answer(self, question_id: str, *, client_id: str | None = None) -> Opened:
        """Stores one more empty answer to a question. Raises GoneError: no such question."""
        async with self._database.transaction() as session:
            question = await session.get(Message, question_id)
            if question is None:
                raise GoneError("conversation")
            await _touch(session, question.conversation_id)
            return await _open_answer(session, question, client_id)

    async def reopen(self, answer: Message, *, options: dict[str, Any], client_id: str) -> None:
        """Marks an ended answer `running` again; behind its text, as it was read, a new part
        begins, made with `options`, found again under `client_id` (`seams.part_of`). Raises
        AnswerChangedError when it was changed since, GoneError."""
        async with self._database.transaction() as session:
            # The conversation first, as everybody does: who deletes it locks its messages next.
            await _touch(session, answer.conversation_id)
            await begin_part(session, answer.id, answer.updated_at, options, client_id)

    async def undo(self, answer_id: str, *, key: str) -> None:
        """Makes an answer what it was before its last continuation; nothing the second time under
        the same `key`. Raises NoSeamError, GoneError, and AnswerChangedError while it is
        running."""
        async with self._database.transaction() as session:
            await _hold(session, answer_id)
            answer = await locked(session, answer_id)
            if answer is None:
                raise GoneError("conversation")
            if answer.undo_id == key:
                return
            if answer.state == MessageState.RUNNING:
                raise AnswerChangedError(answer_id)
            await take_back_part(session, answer)
            answer.undo_id = key
            answer.updated_at = utc_now()
            await _touch(session, answer.conversation_id)
        self._on_end(answer_id)

    async def prepare(self, answer_id: str, prepared: Prepared) -> None:
        """Stores what the model is about to be given. Raises GoneError."""
        async with self._database.transaction() as session:
            found = await session.scalar(
                update(Message)
                .where(Message.id == answer_id)
                .values(
                    prompt_token_ids=prepared.prompt_token_ids,
                    context=prepared.context,
                    options=prepared.options,
                    model=prepared.model,
                    not_found=prepared.not_found,
                    updated_at=utc_now(),
                )
                .returning(Message.id)
            )
            if found is None:
                raise GoneError("conversation")
            await session.execute(
                delete(MessagePassage).where(MessagePassage.message_id == answer_id)
            )
            if prepared.passages:
                await session.execute(
                    insert(MessagePassage),
                    [{"message_id": answer_id, **asdict(passage)} for passage in prepared.passages],
                )

    async def save_partials(self, partials: Sequence[Partial]) -> None:
        """Stores the text so far of answers that still run, all in one transaction."""
        if not partials:
            return
        async with self._database.transaction() as session:
            connection = await session.connection()
            await connection.execute(
                update(Message)
                .where(Message.id == bindparam("answer"), Message.state == MessageState.RUNNING)
                .values(
                    text=bindparam("so_far"),
                    token_ids=bindparam("ids"),
                    thinking=bindparam("thought"),
                    num_told=bindparam("told"),
                ),
                [
                    {
                        "answer": part.answer_id,
                        "so_far": part.text,
                        "ids": part.token_ids,
                        "thought": part.thinking,
                        "told": part.num_told,
                    }
                    for part in partials
                ],
            )

    async def finish(self, answer_id: str, outcome: Outcome) -> None:
        """Stores how an answer ended."""
        if outcome.takes_back:
            async with self._database.transaction() as session:
                answer = await locked(session, answer_id)
                # Deleted meanwhile. Or an end is stored again that may have been stored before.
                if answer is not None and answer.state == MessageState.RUNNING:
                    answer.updated_at = await take_back_part(session, answer)
            self._on_end(answer_id)
            return
        values: dict[str, Any] = {
            "state": outcome.state,
            "finish_reason": outcome.finish_reason,
            "finish_detail": outcome.finish_detail,
            "finish_type": outcome.finish_detail.get("type"),
            "updated_at": utc_now(),
        }
        for name in _OPTIONAL:
            value = getattr(outcome, name)
            if value is not None:
                values[name] = value
        if outcome.is_compared:
            values["citations"] = outcome.citations
        async with self._database.transaction() as session:
            await session.execute(update(Message).where(Message.id == answer_id).values(**values))
            if outcome.is_compared:
                await put_marks(session, answer_id, outcome.marks)
        self._on_end(answer_id)

    async def interrupt_running(
        self, figures: Callable[[Message], Mapping[str, Any]] = lambda _: {}
    ) -> int:
        """Marks every answer that a dead process left `running`, keeping its text. For the
        start, before anything runs. `figures`: columns to store with it, of the answer as it is
        stored, with its tokens. Returns how many there were."""
        async with self._database.transaction() as session:
            answers = await session.scalars(
                select(Message)
                .where(Message.state == MessageState.RUNNING)
                .options(undefer(Message.prompt_token_ids), undefer(Message.token_ids))
            )
            num_answers = 0
            for answer in answers.all():
                num_answers += 1
                known = {
                    **figures(answer),
                    "state": MessageState.INTERRUPTED,
                    "finish_reason": "abort",
                    "finish_detail": INTERRUPTED_DETAIL,
                    "finish_type": INTERRUPTED_DETAIL["type"],
                    "updated_at": utc_now(),
                }
                for name, value in known.items():
                    setattr(answer, name, value)
            return num_answers

    async def put_feedback(
        self, user_id: str, message_id: str, value: str | None, note: str | None
    ) -> None:
        """Stores what the user thinks of an answer, in place of what the user thought before;
        None: no longer anything. Raises GoneError."""
        async with self._database.transaction() as session:
            await _hold(session, message_id)
            if value is None:
                await session.execute(
                    delete(Feedback).where(
                        Feedback.message_id == message_id, Feedback.user_id == user_id
                    )
                )
                return
            said = {"value": value, "note": note, "created_at": utc_now()}
            key = {"message_id": message_id, "user_id": user_id}
            await session.execute(
                self._insert(Feedback)
                .values(**key, **said)
                .on_conflict_do_update(index_elements=list(key), set_=said)
            )

    # Reading.

    async def get(
        self, user_id: str, message_id: str, *, with_tokens: bool = False
    ) -> Message | None:
        """One message of the user's; its token ids only `with_tokens`."""
        query = (
            select(Message)
            .join(Conversation, Conversation.id == Message.conversation_id)
            .where(Message.id == message_id, Conversation.user_id == user_id)
        )
        if with_tokens:
            query = query.options(undefer(Message.prompt_token_ids), undefer(Message.token_ids))
        async with self._database.session() as session:
            return await session.scalar(query)

    async def answer_to_client_id(self, user_id: str, client_id: str) -> Message | None:
        """The user's answer that was last asked for under this idempotency key."""
        async with self._database.session() as session:
            return await session.scalar(
                select(Message)
                .join(Conversation, Conversation.id == Message.conversation_id)
                .where(Message.client_id == client_id, Conversation.user_id == user_id)
                .order_by(Message.id.desc())
                .limit(1)
            )

    async def of_conversation(self, conversation_id: str) -> list[Message]:
        """All messages of a conversation in order of making; a parent before its children."""
        async with self._database.session() as session:
            rows = await session.scalars(
                select(Message)
                .where(Message.conversation_id == conversation_id)
                .order_by(Message.id)
            )
            return list(rows)

    async def path(self, message_id: str) -> list[Message]:
        """The messages from the top of the conversation down to this one. Raises GoneError."""
        async with self._database.session() as session:
            message = await session.get(Message, message_id)
            if message is None:
                raise GoneError("conversation")
            # Other branches may be many times the path: of them only the parents are read.
            pairs = await session.execute(
                select(Message.id, Message.parent_id).where(
                    Message.conversation_id == message.conversation_id
                )
            )
            parents = dict(pairs.all())
            ids, by_id = [message.id], {message.id: message}
            while (parent := parents[ids[-1]]) is not None:
                ids.append(parent)
            for batch in batches(ids[1:]):
                rows = await session.scalars(select(Message).where(Message.id.in_(batch)))
                by_id |= {row.id: row for row in rows}
        return [by_id[id] for id in reversed(ids)]

    async def passages(self, answer_ids: Sequence[str]) -> dict[str, list[MessagePassage]]:
        """The passages of each answer, in order of `n`."""
        found: dict[str, list[MessagePassage]] = defaultdict(list)
        async with self._database.session() as session:
            for batch in batches(answer_ids):
                rows = await session.scalars(
                    select(MessagePassage)
                    .where(MessagePassage.message_id.in_(batch))
                    .order_by(MessagePassage.message_id, MessagePassage.n)
                )
                for row in rows:
                    found[row.message_id].append(row)
        return found

    async def feedback(self, user_id: str, message_ids: Sequence[str]) -> dict[str, Feedback]:
        """What the user thinks of these messages, by message."""
        found: dict[str, Feedback] = {}
        async with self._database.session() as session:
            for batch in batches(message_ids):
                rows = await session.scalars(
                    select(Feedback).where(
                        Feedback.user_id == user_id, Feedback.message_id.in_(batch)
                    )
                )
                found |= {row.message_id: row for row in rows}
        return found

    def _insert(self, table: type[Table]) -> sqlite.Insert | postgresql.Insert:
        """An INSERT that can say what becomes of a row that is there already."""
        return sqlite.insert(table) if self._database.is_sqlite else postgresql.insert(table)

    async def _put_guest(self, session: AsyncSession, user_id: str) -> None:
        # Two first questions of one guest may come at once.
        await session.execute(
            self._insert(User).values(id=user_id).on_conflict_do_nothing(index_elements=["id"])
        )


def _ignore(_answer_id: str) -> None:
    pass


async def _open_answer(session: AsyncSession, question: Message, client_id: str | None) -> Opened:
    answer = Message(
        conversation_id=question.conversation_id,
        parent_id=question.id,
        role="assistant",
        state=MessageState.RUNNING,
        client_id=client_id,
    )
    session.add(answer)
    await session.flush()
    return Opened(question.conversation_id, question.id, answer.id, question.parent_id)


async def _latest_answer(session: AsyncSession, conversation_id: str) -> str | None:
    return await session.scalar(
        select(Message.id)
        # What was carried on begins with a summary, which the first question follows.
        .where(
            Message.conversation_id == conversation_id,
            Message.role.in_(("assistant", "summary")),
        )
        .order_by(Message.id.desc())
        .limit(1)
    )


async def _hold(session: AsyncSession, message_id: str) -> None:
    """Locks the conversation of a message, before anything of it is locked. Raises GoneError."""
    query = (
        select(Conversation.id)
        .join(Message, Message.conversation_id == Conversation.id)
        .where(Message.id == message_id)
        .with_for_update(of=Conversation)
    )
    if await session.scalar(query) is None:
        raise GoneError("conversation")


async def _touch(session: AsyncSession, conversation_id: str) -> None:
    found = await session.scalar(
        update(Conversation)
        .where(Conversation.id == conversation_id)
        .values(updated_at=utc_now())
        .returning(Conversation.id)
    )
    if found is None:
        raise GoneError("conversation")
