"""What was compared of answers that did not end by themselves: nothing is said any more of those
that nothing was found for, since it was not looked at then how much of them was complete.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_WHOLE_TYPES = ("eos", "stop_string", "stop_token")


def upgrade() -> None:
    message = sa.table("message", sa.column("citations", sa.JSON()), sa.column("finish_type"))
    op.execute(
        sa.update(message)
        .where(
            sa.cast(message.c.citations, sa.Text()) == "[]",
            message.c.finish_type.not_in(_WHOLE_TYPES),
        )
        .values(citations=sa.null())
    )


def downgrade() -> None:
    raise NotImplementedError("0004 has no way back: restore the database from a backup")
