"""People, materials with a life of their own, places, citations, and words on both databases.

Columns are only added (a copied parent table would empty its children on SQLite), constraints are
unique indexes. The text of materials stays; passages and their words are made anew at the next
start, since `made_from` no longer fits.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TSVECTOR

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_FORMATS = ("markdown", "text")
"""What `material.kind` held for files that no note described."""


def upgrade() -> None:
    connection = op.get_bind()
    _add_columns()
    _add_tables()
    # Whoever asked before there were accounts was a guest.
    user = sa.table("user", sa.column("role", sa.String))
    connection.execute(sa.update(user).values(role="guest"))
    # Courses came from folders, and everybody could ask them.
    connection.execute(sa.text("UPDATE course SET is_open = true"))
    material = sa.table("material", sa.column("kind"), sa.column("format"))
    connection.execute(
        sa.update(material)
        .where(material.c.kind.in_(_FORMATS))
        .values(format=material.c.kind, kind="other")
    )
    _fill_finish_type(connection)
    # Of two thoughts about one message the later one counts.
    connection.execute(
        sa.text(
            "DELETE FROM feedback WHERE EXISTS (SELECT 1 FROM feedback AS later WHERE "
            "later.message_id = feedback.message_id AND later.user_id = feedback.user_id "
            "AND later.id > feedback.id)"
        )
    )
    op.create_index("uq_user_login", "user", ["login"], unique=True)
    op.create_index("uq_course_join_code", "course", ["join_code"], unique=True)
    op.create_index("uq_material_content", "material", ["course_id", "content_sha256"], unique=True)
    op.create_index("ix_material_state", "material", ["state"])
    op.create_index("ix_material_uploaded_by", "material", ["uploaded_by"])
    op.create_index("ix_message_finish_type", "message", ["finish_type"])
    op.create_index("uq_feedback_message_user", "feedback", ["message_id", "user_id"], unique=True)
    if connection.dialect.name == "sqlite":
        _make_words_on_sqlite()
    else:
        _make_words_on_postgresql()


def _add_columns() -> None:
    def flag(name: str) -> sa.Column[bool]:
        return sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false())

    moment = sa.DateTime(timezone=True)
    columns: dict[str, list[sa.Column[Any]]] = {
        "user": [
            sa.Column("name", sa.Text()),
            sa.Column("login", sa.String(200)),
            sa.Column("password_hash", sa.String(200)),
            flag("is_disabled"),
            sa.Column("seen_at", moment),
        ],
        "course": [
            sa.Column("join_code", sa.String(16)),
            flag("is_open"),
            flag("shows_names"),
            sa.Column("starts_on", sa.Date()),
            sa.Column("num_weeks", sa.Integer()),
            sa.Column("timezone", sa.String(64)),
            sa.Column("retention_days", sa.Integer()),
            sa.Column("archived_at", moment),
        ],
        "material": [
            sa.Column("format", sa.String(16), nullable=False, server_default="markdown"),
            sa.Column("state", sa.String(16), nullable=False, server_default="ready"),
            flag("is_hidden"),
            sa.Column("visible_from", moment),
            sa.Column("content_sha256", sa.String(64)),
            sa.Column("made_from", sa.String(64), nullable=False, server_default=""),
            sa.Column("size_bytes", sa.BigInteger()),
            sa.Column("encoding", sa.String(32)),
            sa.Column("num_pages", sa.Integer()),
            sa.Column("error_code", sa.String(32)),
            sa.Column("error_facts", sa.JSON()),
            sa.Column("warning", sa.Text()),
            sa.Column("attempts", sa.Integer(), nullable=False, server_default="0"),
            sa.Column("edited", sa.JSON(), nullable=False, server_default="[]"),
            sa.Column("updated_at", moment),
        ],
        "passage": [sa.Column("place", sa.JSON()), sa.Column("language", sa.String(16))],
        "message": [
            sa.Column("finish_type", sa.String(32)),
            sa.Column("citations", sa.JSON()),
        ],
        "message_passage": [
            sa.Column("place", sa.JSON()),
            flag("is_cited"),
            sa.Column("marks", sa.JSON()),
        ],
    }
    for table, added in columns.items():
        for column in added:
            op.add_column(table, column)
    # By hand, since Alembic would add the constraint on its own, which SQLite cannot.
    op.execute(
        "ALTER TABLE material ADD COLUMN uploaded_by VARCHAR(64) "
        'CONSTRAINT fk_material_uploaded_by_user REFERENCES "user" (id) ON DELETE SET NULL'
    )
    op.drop_column("material", "sha256")


def _add_tables() -> None:
    moment = sa.DateTime(timezone=True)

    def owned_by(
        table: str, column: str, parent: str, *, nullable: bool = False, key: bool = False
    ) -> sa.Column[str]:
        return sa.Column(
            column,
            sa.String(64),
            sa.ForeignKey(f"{parent}.id", name=f"fk_{table}_{column}_{parent}", ondelete="CASCADE"),
            nullable=nullable,
            primary_key=key,
        )

    op.create_table(
        "login_session",
        sa.Column("id", sa.String(64), nullable=False),
        owned_by("login_session", "user_id", "user"),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("expires_at", moment, nullable=False),
        sa.Column("seen_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_login_session"),
    )
    op.create_index("ix_login_session_user_id", "login_session", ["user_id"])
    op.create_table(
        "one_time_link",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("purpose", sa.String(16), nullable=False),
        owned_by("one_time_link", "user_id", "user", nullable=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("expires_at", moment, nullable=False),
        sa.Column("used_at", moment),
        sa.PrimaryKeyConstraint("id", name="pk_one_time_link"),
    )
    op.create_index("ix_one_time_link_user_id", "one_time_link", ["user_id"])
    op.create_table(
        "enrolment",
        owned_by("enrolment", "course_id", "course"),
        owned_by("enrolment", "user_id", "user"),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("pseudonym", sa.String(32), nullable=False),
        sa.Column("joined_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("course_id", "user_id", name="pk_enrolment"),
    )
    op.create_index("ix_enrolment_user_id", "enrolment", ["user_id"])
    op.create_index("uq_enrolment_pseudonym", "enrolment", ["course_id", "pseudonym"], unique=True)
    op.create_table(
        "passage_vector",
        owned_by("passage_vector", "passage_id", "passage"),
        sa.Column("model", sa.String(64), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("passage_id", "model", name="pk_passage_vector"),
    )


def _fill_finish_type(connection: sa.Connection) -> None:
    message = sa.table(
        "message",
        sa.column("id", sa.String),
        sa.column("finish_detail", sa.JSON(none_as_null=True)),
        sa.column("finish_type", sa.String),
    )
    rows = connection.execute(
        sa.select(message.c.id, message.c.finish_detail).where(message.c.finish_detail.is_not(None))
    )
    values = [
        {"of": id, "type": detail["type"]}
        for id, detail in rows
        if isinstance(detail, dict) and isinstance(detail.get("type"), str)
    ]
    if values:
        connection.execute(
            sa.update(message)
            .where(message.c.id == sa.bindparam("of"))
            .values(finish_type=sa.bindparam("type")),
            values,
        )


def _make_words_on_sqlite() -> None:
    # The columns hold the words of server/store/analysis.py, already folded and stemmed; what is
    # scoped by (course_id) is indexed, so that a search touches only its own course's rows.
    op.execute("DROP TABLE passage_fts")
    op.execute(
        "CREATE VIRTUAL TABLE passage_fts USING fts5("
        "title, heading, body, course_id, material_id UNINDEXED, passage_id UNINDEXED, "
        "tokenize = 'unicode61 remove_diacritics 0')"
    )
    op.execute(
        "CREATE VIRTUAL TABLE record_fts USING fts5("
        "words, course_id, answer_id UNINDEXED, tokenize = 'unicode61 remove_diacritics 0')"
    )


def _make_words_on_postgresql() -> None:
    # `words` is built by server/store/tsvector_index.py from the same words, not by a text search
    # configuration of the database; the plain columns are what the ranking reads.
    op.create_table(
        "passage_words",
        sa.Column("passage_id", sa.String(64), nullable=False),
        sa.Column("material_id", sa.String(64), nullable=False),
        sa.Column("course_id", sa.String(64), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("heading", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("words", TSVECTOR(), nullable=False),
        sa.PrimaryKeyConstraint("passage_id", name="pk_passage_words"),
    )
    op.create_index("ix_passage_words_material_id", "passage_words", ["material_id"])
    op.create_index("ix_passage_words_course_id", "passage_words", ["course_id"])
    op.execute("CREATE INDEX ix_passage_words_words ON passage_words USING gin (words)")
    op.create_table(
        "record_words",
        sa.Column("answer_id", sa.String(64), nullable=False),
        sa.Column("course_id", sa.String(64), nullable=False),
        sa.Column("words", TSVECTOR(), nullable=False),
        sa.PrimaryKeyConstraint("answer_id", name="pk_record_words"),
    )
    op.create_index("ix_record_words_course_id", "record_words", ["course_id"])
    op.execute("CREATE INDEX ix_record_words_words ON record_words USING gin (words)")


def downgrade() -> None:
    raise NotImplementedError("0002 has no way back: restore the database from a backup")
