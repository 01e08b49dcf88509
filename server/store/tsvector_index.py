"""The full-text index on PostgreSQL: `tsvector` columns over words that are already folded and
stemmed. The vectors are written out here; a text search configuration of the database would split
words in its own way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.store.analysis import QueryUnit
from server.store.passage_index import AskedWords, Hit, IndexedWords, WordCounts

_MAX_LEXEME_BYTES = 2046
"""PostgreSQL's own limit; a longer "word" is nothing that anybody asks for."""
_EXTRA = 0.3
"""What a word counts for that only helps to find."""


class TsvectorPassageIndex:
    """`PassageIndex` by `passage_words`. Has no state: one may serve all sessions."""

    async def add(
        self,
        session: AsyncSession,
        course_id: str,
        material_id: str,
        rows: Sequence[tuple[str, IndexedWords]],
    ) -> None:
        if rows:
            await session.execute(
                _INSERT,
                [
                    {
                        "passage_id": passage_id,
                        "material_id": material_id,
                        "course_id": course_id,
                        "title": words.title,
                        "heading": words.heading,
                        "body": words.body,
                        "words": _vector(f"{words.title} {words.heading} {words.body}".split()),
                    }
                    for passage_id, words in rows
                ],
            )

    async def retitle(self, session: AsyncSession, material_id: str, title_words: str) -> None:
        rows = await session.execute(_COLUMNS, {"material": material_id})
        changed = [
            {
                "passage_id": passage_id,
                "title": title_words,
                "words": _vector(f"{title_words} {heading} {body}".split()),
            }
            for passage_id, heading, body in rows
        ]
        if changed:
            await session.execute(_RETITLE, changed)

    async def forget(self, session: AsyncSession, material_id: str) -> None:
        await session.execute(_FORGET, {"material": material_id})

    async def forget_passages(self, session: AsyncSession, passage_ids: Collection[str]) -> None:
        await session.execute(_FORGET_PASSAGES, {"ids": list(passage_ids)})

    async def search(
        self,
        session: AsyncSession,
        course_id: str,
        units: Sequence[QueryUnit],
        *,
        limit: int,
        without: Collection[str] = (),
    ) -> list[Hit]:
        queries: dict[str, float] = {}
        for unit in units:
            queries.setdefault(_any_of(unit), unit.weight)
            for word in unit.extra:
                queries.setdefault(_quoted(word), unit.weight * _EXTRA)
        if not queries:
            return []
        rows = await session.execute(
            _SEARCH,
            {
                "course": course_id,
                "queries": list(queries),
                "weights": list(queries.values()),
                "without": list(without),
                "limit": limit,
            },
        )
        asked = AskedWords(units)
        return await asked.hits(rows.all())

    async def count(
        self, session: AsyncSession, course_id: str, units: Sequence[QueryUnit]
    ) -> WordCounts:
        terms = {word: _lexeme(word, unit.prefix) for unit in units for word in unit.words}
        rows = await session.execute(_COUNT, {"course": course_id, "queries": list(terms.values())})
        total, *counts = (count for (count,) in rows)
        return WordCounts(total, dict(zip(terms, counts, strict=True)))


class TsvectorRecordIndex:
    """`RecordIndex` by `record_words`. Has no state: one may serve all sessions."""

    async def add(self, session: AsyncSession, answer_id: str, course_id: str, words: str) -> None:
        await session.execute(
            _INSERT_RECORD,
            {"answer_id": answer_id, "course_id": course_id, "words": _vector(words.split())},
        )

    async def forget(self, session: AsyncSession, answer_ids: Collection[str]) -> None:
        await session.execute(_FORGET_RECORDS, {"ids": list(answer_ids)})

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
                "course": course_id,
                "query": _every(units),
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
        rows = await session.execute(
            _SEARCH_OWN,
            {"query": _every(units), "user": user_id, "course": course_id, "limit": limit},
        )
        return {str(conversation_id): str(answer_id) for conversation_id, answer_id in rows}


def _every(units: Sequence[QueryUnit]) -> str:
    return " & ".join(f"({_any_of(unit, *unit.extra)})" for unit in units)


def _vector(words: Iterable[str]) -> str:
    kept = (word for word in dict.fromkeys(words) if len(word.encode()) <= _MAX_LEXEME_BYTES)
    return " ".join(map(_quoted, kept))


def _any_of(unit: QueryUnit, *extra: str) -> str:
    asked = [_lexeme(word, unit.prefix) for word in unit.words]
    return " | ".join([*asked, *map(_quoted, extra)])


def _lexeme(word: str, prefix: bool) -> str:
    return _quoted(word) + ":*" if prefix else _quoted(word)


def _quoted(word: str) -> str:
    """A lexeme as `tsvector` and `tsquery` read it: nothing in it is syntax."""
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


_INSERT = text(
    "INSERT INTO passage_words "
    "(passage_id, material_id, course_id, title, heading, body, words) VALUES (:passage_id, "
    ":material_id, :course_id, :title, :heading, :body, CAST(CAST(:words AS text) AS tsvector))"
)
_COLUMNS = text("SELECT passage_id, heading, body FROM passage_words WHERE material_id = :material")
_RETITLE = text(
    "UPDATE passage_words SET title = :title, words = CAST(CAST(:words AS text) AS tsvector) "
    "WHERE passage_id = :passage_id"
)
_FORGET = text("DELETE FROM passage_words WHERE material_id = :material")
_FORGET_PASSAGES = text("DELETE FROM passage_words WHERE passage_id = ANY(CAST(:ids AS text[]))")
# The database's own ranks know nothing of how rare a word is: each thing that is asked for counts
# by its rarity in the course.
_SEARCH = text(
    "WITH asked AS (SELECT CAST(query AS tsquery) AS query, weight, n "
    "FROM unnest(CAST(:queries AS text[]), CAST(:weights AS float8[])) "
    "WITH ORDINALITY AS given (query, weight, n)), "
    "total AS (SELECT count(*) AS passages FROM passage_words WHERE course_id = :course), "
    "found AS (SELECT asked.n, asked.weight, held.passage_id, held.material_id FROM asked "
    "JOIN passage_words AS held ON held.course_id = :course AND held.words @@ asked.query), "
    "rarity AS (SELECT n, ln(1 + ((SELECT passages FROM total) - count(*) + 0.5) "
    "/ (count(*) + 0.5)) AS worth FROM found GROUP BY n), "
    "best AS (SELECT passage_id, sum(weight * worth) AS score FROM found JOIN rarity USING (n) "
    "WHERE NOT material_id = ANY(CAST(:without AS text[])) "
    "GROUP BY passage_id ORDER BY score DESC, passage_id LIMIT :limit) "
    "SELECT passage_id, title, heading, body FROM best JOIN passage_words USING (passage_id) "
    "ORDER BY score DESC, passage_id"
)
_COUNT = text(
    "SELECT holding FROM ("
    "SELECT 0 AS n, count(*) AS holding FROM passage_words WHERE course_id = :course UNION ALL "
    "SELECT n, (SELECT count(*) FROM passage_words WHERE course_id = :course "
    "AND words @@ CAST(query AS tsquery)) "
    "FROM unnest(CAST(:queries AS text[])) WITH ORDINALITY AS given (query, n)) "
    "AS counted ORDER BY n"
)
_INSERT_RECORD = text(
    "INSERT INTO record_words (answer_id, course_id, words) "
    "VALUES (:answer_id, :course_id, CAST(CAST(:words AS text) AS tsvector)) "
    "ON CONFLICT (answer_id) DO UPDATE SET course_id = EXCLUDED.course_id, words = EXCLUDED.words"
)
_FORGET_RECORDS = text("DELETE FROM record_words WHERE answer_id = ANY(CAST(:ids AS text[]))")
_SEARCH_RECORDS = text(
    "SELECT answer_id FROM record_words WHERE course_id = :course "
    "AND words @@ CAST(CAST(:query AS text) AS tsquery) "
    "AND (CAST(:before AS text) IS NULL OR answer_id < CAST(:before AS text)) "
    "ORDER BY answer_id DESC LIMIT :limit"
)
_SEARCH_OWN = text(
    "SELECT conversation.id, max(record_words.answer_id) AS newest FROM record_words "
    "JOIN message ON message.id = record_words.answer_id "
    "JOIN conversation ON conversation.id = message.conversation_id "
    "WHERE record_words.words @@ CAST(CAST(:query AS text) AS tsquery) "
    "AND conversation.user_id = :user "
    "AND (CAST(:course AS text) IS NULL OR conversation.course_id = CAST(:course AS text)) "
    "GROUP BY conversation.id ORDER BY newest DESC LIMIT :limit"
)
