"""Tables. SQLite by default, PostgreSQL by URL; migrations in `server/store/migrations`.

user ─< conversation ─< message (tree by parent) ─< message_passage (snapshots), feedback
course ─< material ─< passage (searched through `passage_fts`, made by the migration)
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from server.store.column_types import CleanText, TokenIds, UtcDateTime, utc_now
from server.store.ids import new_id


class MessageState(StrEnum):
    """running → finished, stopped (by its reader), interrupted (cut from outside) or error."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    ERROR = "error"


class Table(DeclarativeBase):
    """Root of all tables; constraint names are fixed so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class User(Table):
    """Somebody who asked something. The id is the one in the session cookie."""

    __tablename__ = "user"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(16), default="student")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class Course(Table):
    """A course; `suggestions` are questions to start with, `[{"en": …, "zh": …}]`."""

    __tablename__ = "course"

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    slug: Mapped[str] = mapped_column(String(64), unique=True)
    title: Mapped[str] = mapped_column(CleanText)
    title_zh: Mapped[str | None] = mapped_column(CleanText)
    language: Mapped[str] = mapped_column(String(16), default="en")
    suggestions: Mapped[list[dict[str, str]]] = mapped_column(JSON, default=list)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class Material(Table):
    """One document of a course, with its whole text. `name` is its file name."""

    __tablename__ = "material"

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    course_id: Mapped[str] = mapped_column(ForeignKey("course.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(CleanText)
    title: Mapped[str] = mapped_column(CleanText)
    kind: Mapped[str] = mapped_column(String(32), default="markdown")
    week: Mapped[int | None]
    sha256: Mapped[str] = mapped_column(String(64))
    text: Mapped[str] = mapped_column(CleanText)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class PassageRow(Table):
    """A piece of a material, in order of `position` from 0. `course_id` repeats the material's
    so that a search needs no join."""

    __tablename__ = "passage"

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    material_id: Mapped[str] = mapped_column(
        ForeignKey("material.id", ondelete="CASCADE"), index=True
    )
    course_id: Mapped[str] = mapped_column(ForeignKey("course.id", ondelete="CASCADE"), index=True)
    position: Mapped[int]
    heading: Mapped[str] = mapped_column(CleanText, default="")
    locator: Mapped[str] = mapped_column(CleanText, default="")
    text: Mapped[str] = mapped_column(CleanText)
    num_tokens: Mapped[int]


class Conversation(Table):
    """Questions and answers of one user about one course."""

    __tablename__ = "conversation"
    __table_args__ = (Index("ix_conversation_user_updated", "user_id", "updated_at"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id", ondelete="CASCADE"))
    course_id: Mapped[str | None] = mapped_column(
        ForeignKey("course.id", ondelete="SET NULL"), index=True
    )
    title: Mapped[str] = mapped_column(CleanText, default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class Message(Table):
    """A question (`user`) or an answer (`assistant`). Siblings share a parent: a question that
    was edited, an answer that was made again.

    `prompt_token_ids` and `token_ids` are exactly what the engine was given and made, so that an
    answer can be continued. `seams` are character offsets in `text` where a continuation began.
    `client_id` is the idempotency key of the message that asked for it."""

    __tablename__ = "message"
    __table_args__ = (Index("ix_message_conversation", "conversation_id", "id"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    conversation_id: Mapped[str] = mapped_column(ForeignKey("conversation.id", ondelete="CASCADE"))
    parent_id: Mapped[str | None] = mapped_column(
        ForeignKey("message.id", ondelete="CASCADE"), index=True
    )
    role: Mapped[str] = mapped_column(String(16))
    text: Mapped[str] = mapped_column(CleanText, default="")
    state: Mapped[str] = mapped_column(String(16), default=MessageState.FINISHED, index=True)
    client_id: Mapped[str | None] = mapped_column(String(200), index=True)
    model: Mapped[str | None] = mapped_column(String(200))
    prompt_token_ids: Mapped[tuple[int, ...] | None] = mapped_column(TokenIds, deferred=True)
    token_ids: Mapped[tuple[int, ...] | None] = mapped_column(TokenIds, deferred=True)
    finish_reason: Mapped[str | None] = mapped_column(String(16))
    finish_detail: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    usage: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    timing: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    context: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    options: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    max_tokens: Mapped[int | None]
    seams: Mapped[list[int]] = mapped_column(JSON, default=list)
    not_found: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class MessagePassage(Table):
    """A passage as it was when the answer was made: a snapshot that outlives its material.
    `n` counts from 1 in order of rank; `used` is false for those that the budget left out."""

    __tablename__ = "message_passage"

    message_id: Mapped[str] = mapped_column(
        ForeignKey("message.id", ondelete="CASCADE"), primary_key=True
    )
    n: Mapped[int] = mapped_column(primary_key=True)
    passage_id: Mapped[str] = mapped_column(String(64))
    material_id: Mapped[str] = mapped_column(String(64))
    title: Mapped[str] = mapped_column(CleanText)
    locator: Mapped[str] = mapped_column(CleanText)
    text: Mapped[str] = mapped_column(CleanText)
    score: Mapped[float]
    num_tokens: Mapped[int] = mapped_column(default=0)
    used: Mapped[bool]


class Feedback(Table):
    """What a reader thought of an answer; the latest of one user about one message counts."""

    __tablename__ = "feedback"

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    message_id: Mapped[str] = mapped_column(
        ForeignKey("message.id", ondelete="CASCADE"), index=True
    )
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id", ondelete="CASCADE"), index=True)
    value: Mapped[str] = mapped_column(String(16))
    note: Mapped[str | None] = mapped_column(CleanText)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
