"""Alembic migrations, run by `Database.migrate` at start."""
