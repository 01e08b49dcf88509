"""What a model thought, what an answer was before it was continued, and where a conversation
that starts with a summary comes from; what a material is to become once that has been read.

Columns are only added. Answers of before have no earlier states: their seams stay and cannot be
undone.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("message", sa.Column("thinking", sa.Text()))
    op.add_column("message", sa.Column("num_told", sa.Integer()))
    op.add_column("message", sa.Column("earlier", sa.JSON(), nullable=False, server_default="[]"))
    op.add_column("message", sa.Column("undo_id", sa.String(200)))
    op.add_column("conversation", sa.Column("carried_from", sa.String(64)))
    op.add_column("material", sa.Column("renewal", sa.JSON()))


def downgrade() -> None:
    raise NotImplementedError("0003 has no way back: restore the database from a backup")
