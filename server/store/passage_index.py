"""What the full-text search promises on either database: `PassageIndex` and `RecordIndex`.

Both hold words as `server.store.analysis` makes them, so what counts as a word, and what a
question asks for, is the same everywhere. The index only finds candidates and says which of the
asked words they hold; ranking them is the application's affair.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from server.store.analysis import QueryUnit

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from server.store.database import Database

TITLE_WEIGHT, HEADING_WEIGHT, BODY_WEIGHT = 1.0, 3.0, 1.0
"""A word in a heading says more about its passage than a word in the text; one in the title is
shared by all passages of its material."""


class IndexedWords(msgspec.Struct, frozen=True):
    """Words joined by blanks, as `server.store.analysis.index_words` makes them: of the
    material's title and file name, of the heading path, and of the text."""

    title: str
    heading: str
    body: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that holds words of the query: how often each of the asked ones occurs, weighted
    by the column, and in which columns; `num_words` in its text."""

    passage_id: str
    words: Mapping[str, float]
    num_words: int
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How common words are in a course: passages that hold each word, of `num_passages`."""

    num_passages: int
    holding: Mapping[str, int]


class PassageIndex(Protocol):
    """The words of passages. All methods work in the caller's session."""

    async def add(
        self,
        session: AsyncSession,
        course_id: str,
        material_id: str,
        rows: Sequence[tuple[str, IndexedWords]],
    ) -> None:
        """Adds passages, each with its id."""

    async def retitle(self, session: AsyncSession, material_id: str, title_words: str) -> None:
        """Gives all passages of a material other title words."""

    async def forget(self, session: AsyncSession, material_id: str) -> None:
        """Takes all passages of a material out. An unknown id is ignored."""

    async def forget_passages(self, session: AsyncSession, passage_ids: Collection[str]) -> None:
        """Takes single passages out. Unknown ids are ignored."""

    async def search(
        self,
        session: AsyncSession,
        course_id: str,
        units: Sequence[QueryUnit],
        *,
        limit: int,
        without: Collection[str] = (),
    ) -> list[Hit]:
        """Up to `limit` passages of the course that hold any word of `units`, the most promising
        first; none of the materials `without`."""

    async def count(
        self, session: AsyncSession, course_id: str, units: Sequence[QueryUnit]
    ) -> WordCounts:
        """How many passages of the course hold each word of `units`, hidden ones included."""


class RecordIndex(Protocol):
    """The words of questions with their answers. All methods work in the caller's session."""

    async def add(self, session: AsyncSession, answer_id: str, course_id: str, words: str) -> None:
        """Adds a record, or replaces its words. `words`: those of `index_words`, joined by
        blanks, of the question and the answer."""

    async def forget(self, session: AsyncSession, answer_ids: Collection[str]) -> None:
        """Takes records out. Unknown ids are ignored."""

    async def search(
        self,
        session: AsyncSession,
        course_id: str,
        units: Sequence[QueryUnit],
        *,
        limit: int,
        before: str | None = None,
    ) -> list[str]:
        """Ids of answers that hold every unit (any of its words), greatest id first, only those
        smaller than `before`. None when `units` is empty."""


class AskedWords:
    """The words of a query, to be counted in what was found."""

    def __init__(self, units: Sequence[QueryUnit]) -> None:
        self._words = {word for unit in units for word in (*unit.words, *unit.extra)}
        self._prefixes = tuple({word for unit in units if unit.prefix for word in unit.words})

    def hit(self, passage_id: str, title: str, heading: str, body: str) -> Hit:
        """What a passage has of them. The arguments are the words of its columns."""
        words: dict[str, float] = {}
        columns: dict[str, str] = {}
        body_words = body.split()
        weighted = (
            ("title", TITLE_WEIGHT, title.split()),
            ("heading", HEADING_WEIGHT, heading.split()),
            ("text", BODY_WEIGHT, body_words),
        )
        for name, weight, column in weighted:
            for word in column:
                if word in self._words or (self._prefixes and word.startswith(self._prefixes)):
                    words[word] = words.get(word, 0.0) + weight
                    if name not in columns.get(word, ""):
                        columns[word] = f"{columns.get(word, '')} {name}".strip()
        return Hit(passage_id, words, len(body_words), columns)


def passage_index(database: Database) -> PassageIndex:
    """The index of passages that fits the database."""
    # Here, since both modules take their values from this one.
    if database.is_sqlite:
        from server.store.fts_index import FtsPassageIndex

        return FtsPassageIndex()
    from server.store.tsvector_index import TsvectorPassageIndex

    return TsvectorPassageIndex()


def record_index(database: Database) -> RecordIndex:
    """The index of records that fits the database."""
    if database.is_sqlite:
        from server.store.fts_index import FtsRecordIndex

        return FtsRecordIndex()
    from server.store.tsvector_index import TsvectorRecordIndex

    return TsvectorRecordIndex()
