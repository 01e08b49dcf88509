"""Names that the migrations, and who compares them with the schema, agree on."""

from __future__ import annotations

SEARCH_TABLES = ("passage_fts", "record_fts", "passage_words", "record_words")
"""Made by hand, and on SQLite with tables of their own (FTS5): the schema does not know them."""
