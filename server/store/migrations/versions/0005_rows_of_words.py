"""Where the words of a passage, and of a record, stand in the full-text tables of SQLite: these can
only be searched by words, so that what is taken out of them would be looked for in every row.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return  # there the tables have indexes of their own
    op.execute(
        "CREATE TABLE passage_fts_row (row INTEGER PRIMARY KEY, passage_id TEXT NOT NULL UNIQUE, "
        "material_id TEXT NOT NULL)"
    )
    op.execute("CREATE INDEX ix_passage_fts_row_material_id ON passage_fts_row (material_id)")
    op.execute("INSERT INTO passage_fts_row SELECT rowid, passage_id, material_id FROM passage_fts")
    op.execute(
        "CREATE TABLE record_fts_row (row INTEGER PRIMARY KEY, answer_id TEXT NOT NULL UNIQUE)"
    )
    op.execute("INSERT INTO record_fts_row SELECT rowid, answer_id FROM record_fts")


def downgrade() -> None:
    raise NotImplementedError("0005 has no way back: restore the database from a backup")
