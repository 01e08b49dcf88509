"""The full-text index on SQLite: FTS5 tables over words that are already folded and stemmed."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.store.analysis import QueryUnit
from server.store.passage_index import (
    BODY_WEIGHT,
    HEADING_WEIGHT,
    TITLE_WEIGHT,
    AskedWords,
    Hit,
    IndexedWords,
    WordCounts,
)


class FtsPassageIndex:
    """`PassageIndex` by `passage_fts`. Has no state: one may serve all sessions."""

    async def add(
        self,
        session: AsyncSession,
        course_id: str,
        material_id: str,
        rows: Sequence[tuple[str, IndexedWords]],
    ) -> None:
        if rows:
            scope = {"course_id": course_id, "material_id": material_id}
            values = [
                {**scope, "passage_id": passage_id, **_columns(words)} for passage_id, words in rows
            ]
            await session.execute(_NEW_ROW, values)
            await session.execute(_INSERT, values)

    async def retitle(self, session: AsyncSession, material_id: str, title_words: str) -> None:
        await session.execute(_RETITLE, {"material": material_id, "title": title_words})

    async def forget(self, session: AsyncSession, material_id: str) -> None:
        for statement in (_FORGET, _FORGET_ROWS):
            await session.execute(statement, {"material": material_id})

    async def forget_passages(self, session: AsyncSession, passage_ids: Collection[str]) -> None:
        for statement in (_FORGET_PASSAGES, _FORGET_PASSAGE_ROWS):
            await session.execute(statement, {"ids": json.dumps(list(passage_ids))})

    async def search(
        self,
        session: AsyncSession,
        course_id: str,
        units: Sequence[QueryUnit],
        *,
        limit: int,
        without: Collection[str] = (),
    ) -> list[Hit]:
        words = " OR ".join(dict.fromkeys(term for unit in units for term in _terms(unit)))
        if not words:
            return []
        rows = await session.execute(
            _SEARCH,
            {
                "match": f"{_scope(course_id)} AND {{title heading body}} : ({words})",
                "course": course_id,
                "without": json.dumps(list(without)),
                "limit": limit,
            },
        )
        asked = AskedWords(units)
        return await asked.hits(rows.all())

    async def count(
        self, session: AsyncSession, course_id: str, units: Sequence[QueryUnit]
    ) -> WordCounts:
        terms = {word: _term(word, unit.prefix) for unit in units for word in unit.words}
        scope = _scope(course_id)
        matches = [f"{scope} AND {{title heading body}} : {term}" for term in terms.values()]
        rows = await session.execute(_COUNT, {"matches": json.dumps([scope, *matches])})
        total, *counts = (count for (count,) in rows)
        return WordCounts(total, dict(zip(terms, counts, strict=True)))


class FtsRecordIndex:
    """`RecordIndex` by `record_fts`. Has no state: one may serve all sessions."""

    async def add(self, session: AsyncSession, answer_id: str, course_id: str, words: str) -> None:
        await self.forget(session, [answer_id])
        values = {"words": words, "course_id": course_id, "answer_id": answer_id}
        await session.execute(_NEW_RECORD_ROW, values)
        await session.execute(_INSERT_RECORD, values)

    async def forget(self, session: AsyncSession, answer_ids: Collection[str]) -> None:
        for statement in (_FORGET_RECORDS, _FORGET_RECORD_ROWS):
            await session.execute(statement, {"ids": json.dumps(list(answer_ids))})

    async def search(
        self,
        session: AsyncSession,
        course_id: str,
        units: Sequence[QueryUnit],
        *,
        limit: int,
        before: str | None = None,
    ) -> list[str]:
        if not units:
            return []
        rows = await session.execute(
            _SEARCH_RECORDS,
            {
                "match": f"{_scope(course_id)} AND words : ({_every(units)})",
                "course": course_id,
                "before": before,
                "limit": limit,
            },
        )
        return [answer_id for (answer_id,) in rows]

    async def search_own(
        self,
        session: AsyncSession,
        user_id: str,
        units: Sequence[QueryUnit],
        *,
        course_id: str | None,
        limit: int,
    ) -> dict[str, str]:
        if not units:
            return {}
        match = f"words : ({_every(units)})"
        if course_id is not None:
            match = f"{_scope(course_id)} AND {match}"
        rows = await session.execute(
            _SEARCH_OWN, {"match": match, "user": user_id, "course": course_id, "limit": limit}
        )
        return {str(conversation_id): str(answer_id) for conversation_id, answer_id in rows}


def _every(units: Sequence[QueryUnit]) -> str:
    return " AND ".join(f"({' OR '.join(_terms(unit))})" for unit in units)


def _columns(words: IndexedWords) -> dict[str, str]:
    return {"title": words.title, "heading": words.heading, "body": words.body}


def _terms(unit: QueryUnit) -> list[str]:
    asked = [_term(word, unit.prefix) for word in unit.words]
    return asked + [_term(word, False) for word in unit.extra]


def _term(word: str, prefix: bool) -> str:
    """An FTS5 string: quoted, so that nothing in it is query syntax."""
    quoted = '"' + word.replace('"', '""') + '"'
    return quoted + " *" if prefix else quoted


def _scope(course_id: str) -> str:
    return f"course_id : {_term(course_id, False)}"


# A column that is not indexed is looked for in every row of a full-text table, so another table
# knows the rows.
_NEW_ROW = text(
    "INSERT INTO passage_fts_row (passage_id, material_id) VALUES (:passage_id, :material_id)"
)
_INSERT = text(
    "INSERT INTO passage_fts (rowid, title, heading, body, course_id, material_id, passage_id) "
    "SELECT row, :title, :heading, :body, :course_id, :material_id, :passage_id "
    "FROM passage_fts_row WHERE passage_id = :passage_id"
)
_OF_MATERIAL = "(SELECT row FROM passage_fts_row WHERE material_id = :material)"
_RETITLE = text(f"UPDATE passage_fts SET title = :title WHERE rowid IN {_OF_MATERIAL}")
_FORGET = text(f"DELETE FROM passage_fts WHERE rowid IN {_OF_MATERIAL}")
_FORGET_ROWS = text("DELETE FROM passage_fts_row WHERE material_id = :material")
_OF_IDS = "(SELECT value FROM json_each(:ids))"
_FORGET_PASSAGES = text(
    "DELETE FROM passage_fts WHERE rowid IN "
    f"(SELECT row FROM passage_fts_row WHERE passage_id IN {_OF_IDS})"
)
_FORGET_PASSAGE_ROWS = text(f"DELETE FROM passage_fts_row WHERE passage_id IN {_OF_IDS}")
_SEARCH = text(
    "SELECT passage_id, title, heading, body FROM passage_fts "
    # The match is by tokens; the equality makes it exact.
    "WHERE passage_fts MATCH :match AND course_id = :course "
    "AND material_id NOT IN (SELECT value FROM json_each(:without)) "
    f"ORDER BY bm25(passage_fts, {TITLE_WEIGHT}, {HEADING_WEIGHT}, {BODY_WEIGHT}, 0.0, 0.0, 0.0), "
    "rowid LIMIT :limit"
)
_COUNT = text(
    "SELECT (SELECT count(*) FROM passage_fts WHERE passage_fts MATCH wanted.value) "
    "FROM json_each(:matches) AS wanted ORDER BY wanted.key"
)
_NEW_RECORD_ROW = text("INSERT INTO record_fts_row (answer_id) VALUES (:answer_id)")
_INSERT_RECORD = text(
    "INSERT INTO record_fts (rowid, words, course_id, answer_id) "
    "SELECT row, :words, :course_id, :answer_id FROM record_fts_row WHERE answer_id = :answer_id"
)
_FORGET_RECORDS = text(
    "DELETE FROM record_fts WHERE rowid IN "
    f"(SELECT row FROM record_fts_row WHERE answer_id IN {_OF_IDS})"
)
_FORGET_RECORD_ROWS = text(f"DELETE FROM record_fts_row WHERE answer_id IN {_OF_IDS}")
_SEARCH_RECORDS = text(
    "SELECT answer_id FROM record_fts WHERE record_fts MATCH :match AND course_id = :course "
    "AND (:before IS NULL OR answer_id < :before) ORDER BY answer_id DESC LIMIT :limit"
)
# CROSS JOIN keeps the order: the words first, since a user's answers cannot be looked up in them.
_SEARCH_OWN = text(
    "SELECT conversation.id, max(record_fts.answer_id) AS newest FROM record_fts "
    "CROSS JOIN message ON message.id = record_fts.answer_id "
    "CROSS JOIN conversation ON conversation.id = message.conversation_id "
    "WHERE record_fts MATCH :match AND conversation.user_id = :user "
    "AND (:course IS NULL OR conversation.course_id = :course) "
    "GROUP BY conversation.id ORDER BY newest DESC LIMIT :limit"
)
