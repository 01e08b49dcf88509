"""Alembic's entry. `Database.migrate` hands over its connection; the `alembic` command, for
writing a new migration, takes the URL from its own configuration."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from server.store.migrations.names import SEARCH_TABLES
from server.store.schema import Table


def _is_ours(_object: object, name: str | None, kind: str, _reflected: bool, _to: object) -> bool:
    return not (kind == "table" and (name or "").startswith(SEARCH_TABLES))


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Table.metadata,
        include_object=_is_ours,
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def _main() -> None:
    connection: Connection | None = context.config.attributes.get("connection")
    if connection is not None:
        _run(connection)
        return
    engine = create_engine(context.config.get_main_option("sqlalchemy.url") or "")
    with engine.begin() as own:
        _run(own)


_main()
