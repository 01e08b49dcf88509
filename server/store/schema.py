"""Tables. SQLite by default, PostgreSQL by URL; migrations in `server/store/migrations`.

user ─< login_session, one_time_link, enrolment >─ course
user ─< conversation ─< message (tree by parent) ─< message_passage (snapshots), feedback
course ─< material ─< passage ─ passage_vector

Words are searched through tables that the migrations make, since each database has its own kind:
`passage_fts` and `record_fts` on SQLite (FTS5; `passage_fts_row` and `record_fts_row` know their
rows), `passage_words` and `record_words` on PostgreSQL (tsvector).
`server/store/passage_index.py` hides the difference.
"""

from __future__ import annotations

from datetime import date, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Date,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    false,
)
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


class MaterialState(StrEnum):
    """waiting → parsing → ready or failed."""

    WAITING = "waiting"
    PARSING = "parsing"
    READY = "ready"
    FAILED = "failed"


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
    """Somebody who asked something or has an account. A guest's id is the one in the session
    cookie; guests have neither name nor login. `login` is unique and kept folded."""

    __tablename__ = "user"
    __table_args__ = (Index("uq_user_login", "login", unique=True),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    role: Mapped[str] = mapped_column(String(16), default="guest")
    name: Mapped[str | None] = mapped_column(CleanText)
    login: Mapped[str | None] = mapped_column(String(200))
    password_hash: Mapped[str | None] = mapped_column(String(200))
    is_disabled: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    seen_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class LoginSession(Table):
    """A browser in which somebody has logged in. `id` is the SHA-256 of its token."""

    __tablename__ = "login_session"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    seen_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class OneTimeLink(Table):
    """A link that sets up an account or a new password, once. `id` is the SHA-256 of its token;
    `purpose` is first_teacher, invite or reset; `user_id` is whose password it resets."""

    __tablename__ = "one_time_link"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    purpose: Mapped[str] = mapped_column(String(16))
    user_id: Mapped[str | None] = mapped_column(
        ForeignKey("user.id", ondelete="CASCADE"), index=True
    )
    role: Mapped[str] = mapped_column(String(16), default="teacher")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class Course(Table):
    """A course; `suggestions` are questions to start with, `[{"en": …, "zh": …}]`.

    `is_open`: guests may ask. `shows_names`: teachers see who asked. The calendar is `starts_on`,
    the Monday of week 1 or a day in it, and `num_weeks`, in `timezone` (an IANA name)."""

    __tablename__ = "course"
    __table_args__ = (Index("uq_course_join_code", "join_code", unique=True),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    slug: Mapped[str] = mapped_column(String(64), unique=True)
    title: Mapped[str] = mapped_column(CleanText)
    title_zh: Mapped[str | None] = mapped_column(CleanText)
    language: Mapped[str] = mapped_column(String(16), default="en")
    suggestions: Mapped[list[dict[str, str]]] = mapped_column(JSON, default=list)
    join_code: Mapped[str | None] = mapped_column(String(16))
    is_open: Mapped[bool] = mapped_column(default=False, server_default=false())
    shows_names: Mapped[bool] = mapped_column(default=False, server_default=false())
    starts_on: Mapped[date | None] = mapped_column(Date)
    num_weeks: Mapped[int | None]
    timezone: Mapped[str | None] = mapped_column(String(64))
    retention_days: Mapped[int | None]
    archived_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class Enrolment(Table):
    """Somebody in a course. `pseudonym` is what teachers see where a course shows no names."""

    __tablename__ = "enrolment"
    __table_args__ = (Index("uq_enrolment_pseudonym", "course_id", "pseudonym", unique=True),)

    course_id: Mapped[str] = mapped_column(
        ForeignKey("course.id", ondelete="CASCADE"), primary_key=True
    )
    user_id: Mapped[str] = mapped_column(
        ForeignKey("user.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    role: Mapped[str] = mapped_column(String(16), default="student")
    pseudonym: Mapped[str] = mapped_column(String(32))
    joined_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class Material(Table):
    """One document of a course, with its whole text. `name` is its file name.

    `kind` is lecture, lab, exam, admin or other; `format` is markdown, text, html, csv, pdf, docx
    or pptx. `content_sha256` is of the file's bytes: the same bytes are one material of a course.
    `made_from` is of everything that its passages were made from. Students see it when it is
    ready, not hidden, and `visible_from` has come. `edited` names the fields that a teacher has
    set, which no import changes any more. `error_code` says why it failed, and `error_facts` what
    fills its sentence; `warning` holds what a teacher should know of one that is ready, as codes
    with blanks between them. `renewal` is what it is to become once that has been read: other
    bytes, or another encoding."""

    __tablename__ = "material"
    __table_args__ = (
        Index("uq_material_content", "course_id", "content_sha256", unique=True),
        Index("ix_material_state", "state"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    course_id: Mapped[str] = mapped_column(ForeignKey("course.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(CleanText)
    title: Mapped[str] = mapped_column(CleanText)
    kind: Mapped[str] = mapped_column(String(32), default="other")
    format: Mapped[str] = mapped_column(String(16), default="markdown", server_default="markdown")
    week: Mapped[int | None]
    state: Mapped[str] = mapped_column(
        String(16), default=MaterialState.READY, server_default="ready"
    )
    is_hidden: Mapped[bool] = mapped_column(default=False, server_default=false())
    visible_from: Mapped[datetime | None] = mapped_column(UtcDateTime)
    content_sha256: Mapped[str | None] = mapped_column(String(64))
    made_from: Mapped[str] = mapped_column(String(64), default="", server_default="")
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    encoding: Mapped[str | None] = mapped_column(String(32))
    num_pages: Mapped[int | None]
    error_code: Mapped[str | None] = mapped_column(String(32))
    error_facts: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    warning: Mapped[str | None] = mapped_column(CleanText)
    attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    edited: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")
    renewal: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    text: Mapped[str] = mapped_column(CleanText, default="", deferred=True)
    uploaded_by: Mapped[str | None] = mapped_column(
        ForeignKey("user.id", ondelete="SET NULL"), index=True
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    updated_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=utc_now)


class PassageRow(Table):
    """A piece of a material, in order of `position` from 0. `course_id` repeats the material's
    so that a search needs no join. `place` is where in the file it stands (a `Place`: page,
    to_page, slide, row), `language` what most of it is written in (zh, or en for all else)."""

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
    place: Mapped[dict[str, int] | None] = mapped_column(JSON(none_as_null=True))
    language: Mapped[str | None] = mapped_column(String(16))


class PassageVector(Table):
    """What an embedding model makes of a passage: float16, little-endian, of unit length."""

    __tablename__ = "passage_vector"

    passage_id: Mapped[str] = mapped_column(
        ForeignKey("passage.id", ondelete="CASCADE"), primary_key=True
    )
    model: Mapped[str] = mapped_column(String(64), primary_key=True)
    vector: Mapped[bytes] = mapped_column(LargeBinary)


class Conversation(Table):
    """Questions and answers of one user about one course. `carried_from` is the message up to
    which the summary that it begins with goes, in a conversation that may be gone by now."""

    __tablename__ = "conversation"
    __table_args__ = (Index("ix_conversation_user_updated", "user_id", "updated_at"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id", ondelete="CASCADE"))
    course_id: Mapped[str | None] = mapped_column(
        ForeignKey("course.id", ondelete="SET NULL"), index=True
    )
    title: Mapped[str] = mapped_column(CleanText, default="")
    carried_from: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class Message(Table):
    """A question (`user`), an answer (`assistant`), or what an earlier conversation was about
    (`summary`). Siblings share a parent: a question that was edited, an answer that was made again.

    `prompt_token_ids` and `token_ids` are exactly what the engine was given and made, so that an
    answer can be continued; `num_told` is how many characters of the tokens' text were told, as
    `thinking` or as `text` (None: those of `text`). `seams` are character offsets in `text` where
    a continuation began, `earlier` what the answer was before each of the last ones, so that they
    can be undone (`server/store/seams.py`); `undo_id` is the idempotency key of the last undo.
    `max_tokens` and `options` are those of the last part.
    `client_id` is the idempotency key of the message that asked for it. `finish_type` repeats
    `finish_detail["type"]`, so that records can be looked up by it; `citations` is None in answers
    that were never matched with their passages."""

    __tablename__ = "message"
    __table_args__ = (
        Index("ix_message_conversation", "conversation_id", "id"),
        Index("ix_message_finish_type", "finish_type"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    conversation_id: Mapped[str] = mapped_column(ForeignKey("conversation.id", ondelete="CASCADE"))
    parent_id: Mapped[str | None] = mapped_column(
        ForeignKey("message.id", ondelete="CASCADE"), index=True
    )
    role: Mapped[str] = mapped_column(String(16))
    text: Mapped[str] = mapped_column(CleanText, default="")
    thinking: Mapped[str | None] = mapped_column(CleanText)
    state: Mapped[str] = mapped_column(String(16), default=MessageState.FINISHED, index=True)
    client_id: Mapped[str | None] = mapped_column(String(200), index=True)
    model: Mapped[str | None] = mapped_column(String(200))
    prompt_token_ids: Mapped[tuple[int, ...] | None] = mapped_column(TokenIds, deferred=True)
    token_ids: Mapped[tuple[int, ...] | None] = mapped_column(TokenIds, deferred=True)
    num_told: Mapped[int | None]
    finish_reason: Mapped[str | None] = mapped_column(String(16))
    finish_detail: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    finish_type: Mapped[str | None] = mapped_column(String(32))
    usage: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    timing: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    context: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    options: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    max_tokens: Mapped[int | None]
    seams: Mapped[list[int]] = mapped_column(JSON, default=list)
    earlier: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list, server_default="[]")
    undo_id: Mapped[str | None] = mapped_column(String(200))
    not_found: Mapped[bool] = mapped_column(default=False)
    citations: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)


class MessagePassage(Table):
    """A passage as it was when the answer was made: a snapshot that outlives its material.
    `n` counts from 1 in order of rank; `used` is false for those that the budget left out.
    `marks` are character ranges of `text`, `[[start, end], …]`, that support the answer."""

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
    place: Mapped[dict[str, int] | None] = mapped_column(JSON(none_as_null=True))
    is_cited: Mapped[bool] = mapped_column(default=False, server_default=false())
    marks: Mapped[list[list[int]] | None] = mapped_column(JSON(none_as_null=True))


class Feedback(Table):
    """What a reader thought of an answer; the latest of one user about one message counts."""

    __tablename__ = "feedback"
    __table_args__ = (Index("uq_feedback_message_user", "message_id", "user_id", unique=True),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True, default=new_id)
    message_id: Mapped[str] = mapped_column(
        ForeignKey("message.id", ondelete="CASCADE"), index=True
    )
    user_id: Mapped[str] = mapped_column(ForeignKey("user.id", ondelete="CASCADE"), index=True)
    value: Mapped[str] = mapped_column(String(16))
    note: Mapped[str | None] = mapped_column(CleanText)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=utc_now)
