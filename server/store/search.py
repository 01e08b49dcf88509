"""`PassageIndex`: the full-text table of passages (SQLite FTS5).

It finds passages of one course that hold any word of a query, best BM25 first. What counts as a
word, and what a question asks for, is `server.store.analysis`'s affair.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from server.store.analysis import QueryUnit, index_words

TITLE_WEIGHT, HEADING_WEIGHT, BODY_WEIGHT = 2.0, 3.0, 1.0
"""A word in a heading says more about its passage than a word in the text."""


@dataclass(frozen=True, slots=True)
class IndexedText:
    """What the index reads of one passage: its material's title and file name, its heading path
    and its own text."""

    passage_id: str
    title: str
    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that holds words of the query. `bm25`: higher is better. `words`: how often each
    of its words occurs, weighted by the column; `num_words` in its text."""

    passage_id: str
    bm25: float
    words: Mapping[str, float]
    num_words: int


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How common words are in a course: passages that hold each word, of `num_passages`."""

    num_passages: int
    holding: Mapping[str, int]


async def index_passages(
    session: AsyncSession, course_id: str, passages: Iterable[IndexedText]
) -> None:
    """Adds passages to the index, in the caller's transaction."""
    rows = [
        {
            "title": " ".join(index_words(passage.title)),
            "heading": " ".join(index_words(passage.heading)),
            "body": " ".join(index_words(passage.text)),
            "course_id": course_id,
            "passage_id": passage.passage_id,
        }
        for passage in passages
    ]
    if rows:
        await session.execute(_INSERT, rows)


async def forget_passages(
    session: AsyncSession, course_id: str, passage_ids: Sequence[str]
) -> None:
    """Takes passages out of the index, in the caller's transaction. Unknown ids are ignored."""
    await session.execute(
        _DELETE, {"course": _scope(course_id), "ids": json.dumps(list(passage_ids))}
    )


async def search_passages(
    session: AsyncSession, course_id: str, units: Sequence[QueryUnit], *, limit: int
) -> list[Hit]:
    """Up to `limit` passages of the course that hold any word of `units`, best first."""
    words = _match_any(units)
    if not words:
        return []
    rows = await session.execute(
        _SEARCH,
        {
            "match": f"{_scope(course_id)} AND {{title heading body}} : ({words})",
            "course": course_id,
            "limit": limit,
        },
    )
    return [_hit(*row) for row in rows]


async def count_words(
    session: AsyncSession, course_id: str, units: Sequence[QueryUnit]
) -> WordCounts:
    """How many passages of the course hold each word of `units`."""
    terms = {word: _term(word, unit.prefix) for unit in units for word in unit.words}
    scope = _scope(course_id)
    matches = [f"{scope} AND {{title heading body}} : {term}" for term in terms.values()]
    rows = await session.execute(_COUNT, {"matches": json.dumps([scope, *matches])})
    total, *counts = (count for (count,) in rows)
    return WordCounts(total, dict(zip(terms, counts, strict=True)))


def _hit(passage_id: str, bm25: float, title: str, heading: str, body: str) -> Hit:
    words: Counter[str] = Counter()
    body_words = body.split()
    weighted = ((title.split(), TITLE_WEIGHT), (heading.split(), HEADING_WEIGHT))
    for column, weight in (*weighted, (body_words, BODY_WEIGHT)):
        for word in column:
            words[word] += weight  # type: ignore[assignment]  # weights are floats
    return Hit(passage_id, -bm25, words, len(body_words))


def _match_any(units: Sequence[QueryUnit]) -> str:
    terms = {
        term: None
        for unit in units
        for term in (
            *(_term(word, unit.prefix) for word in unit.words),
            *(_term(word, False) for word in unit.extra),
        )
    }
    return " OR ".join(terms)


def _term(word: str, prefix: bool) -> str:
    """An FTS5 string: quoted, so that nothing in it is query syntax."""
    quoted = '"' + word.replace('"', '""') + '"'
    return quoted + " *" if prefix else quoted


def _scope(course_id: str) -> str:
    return f"course_id : {_term(course_id, False)}"


_INSERT = text(
    "INSERT INTO passage_fts (title, heading, body, course_id, passage_id) "
    "VALUES (:title, :heading, :body, :course_id, :passage_id)"
)
_DELETE = text(
    "DELETE FROM passage_fts WHERE rowid IN (SELECT rowid FROM passage_fts "
    "WHERE passage_fts MATCH :course AND passage_id IN (SELECT value FROM json_each(:ids)))"
)
_SEARCH = text(
    "SELECT passage_id, bm25(passage_fts, "
    f"{TITLE_WEIGHT}, {HEADING_WEIGHT}, {BODY_WEIGHT}, 0.0, 0.0) AS score, title, heading, body "
    # The match is by tokens; the equality makes it exact.
    "FROM passage_fts WHERE passage_fts MATCH :match AND course_id = :course "
    "ORDER BY score, rowid LIMIT :limit"
)
_COUNT = text(
    "SELECT (SELECT count(*) FROM passage_fts WHERE passage_fts MATCH wanted.value) "
    "FROM json_each(:matches) AS wanted ORDER BY wanted.key"
)
