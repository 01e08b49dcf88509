"""What the full-text search promises on either database: `PassageIndex` and `RecordIndex`.

Both hold words as `server.store.analysis` makes them, so what counts as a word, and what a
question asks for, is the same everywhere. The index only finds candidates and says which of the
asked words they hold; ranking them is the application's affair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import anyio.to_thread
import msgspec

from server.store.analysis import QueryUnit
from server.store.dates import FACT_KEYS
from server.store.passage_items import HEADING_MARK, ITEM_MARK, MARKS, SHARED_MARK

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession

    from server.store.database import Database

TITLE_WEIGHT, HEADING_WEIGHT, BODY_WEIGHT = 1.0, 3.0, 1.0
"""A word in a heading says more about its passage than a word in the text; one in the title is
shared by all passages of its material."""
_ITEM_TITLE_WEIGHT, _ITEM_HEADING_WEIGHT, _ITEM_SHARED_WEIGHT = 1.0, 2.0, 0.5
"""What words of the title count in an item, of the heading right above it, and of its list's
lead-in or its table's header."""


class IndexedWords(msgspec.Struct, frozen=True):
    """Words joined by blanks, as `server.store.analysis.index_words` makes them: of the
    material's title and file name, of the heading path, and of the text; the text's with marks
    of its items, as `server.store.passage_items.body_words` makes them."""

    title: str
    heading: str
    body: str


@dataclass(frozen=True, slots=True)
class ItemWords:
    """An item of a passage: how often it has each of the asked words, with those of the headings
    above it; `num_words` of its own."""

    words: Mapping[str, float]
    num_words: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that holds words of the query: how often each of the asked ones occurs, weighted
    by the column, and in which columns; `num_words` in its text. `items`: those that have asked
    words in the text or in the headings; none for a passage that was indexed without marks."""

    passage_id: str
    words: Mapping[str, float]
    num_words: int
    columns: Mapping[str, str] = field(default_factory=dict)
    items: tuple[ItemWords, ...] = ()


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

    async def search_own(
        self,
        session: AsyncSession,
        user_id: str,
        units: Sequence[QueryUnit],
        *,
        course_id: str | None,
        limit: int,
    ) -> dict[str, str]:
        """Conversations of the user, of one course or all, in which an answer holds every unit:
        up to `limit`, each with the newest such answer. None when `units` is empty."""


class AskedWords:
    """The words of a query, to be counted in what was found."""

    def __init__(self, units: Sequence[QueryUnit]) -> None:
        self._words = {word for unit in units for word in (*unit.words, *unit.extra)}
        self._prefixes = tuple({word for unit in units if unit.prefix for word in unit.words})

    async def hits(self, rows: Sequence[Sequence[str]]) -> list[Hit]:
        """`hit` of each row. In a thread: many take tens of milliseconds of Python."""
        return await anyio.to_thread.run_sync(lambda: [self.hit(*row) for row in rows])

    def hit(self, passage_id: str, title: str, heading: str, body: str) -> Hit:
        """What a passage has of them. The arguments are the words of its columns."""
        words: dict[str, float] = {}
        columns: dict[str, str] = {}
        parts = _parts(body)
        text = [word for _, part in parts for word in part]
        weighted = (
            ("title", TITLE_WEIGHT, title.split()),
            ("heading", HEADING_WEIGHT, heading.split()),
            ("text", BODY_WEIGHT, text),
        )
        for name, weight, column in weighted:
            for word, count in self._counted(column).items():
                # Every item may say that it holds a date: for a passage that is one thing to say.
                times = 1.0 if word in FACT_KEYS else count
                words[word] = words.get(word, 0.0) + weight * times
                columns[word] = f"{columns.get(word, '')} {name}".strip()
        items = self._items(title.split(), heading.split(), parts)
        return Hit(passage_id, words, len(text), columns, items)

    def _counted(self, words: Sequence[str]) -> Counter[str]:
        return Counter(
            word
            for word in words
            if word in self._words or (self._prefixes and word.startswith(self._prefixes))
        )

    def _items(
        self, title: Sequence[str], heading: Sequence[str], parts: Sequence[tuple[str, list[str]]]
    ) -> tuple[ItemWords, ...]:
        counted = [(mark, self._counted(words), len(words)) for mark, words in parts]
        # What the text does not hold of the heading path stands above its first items.
        above = self._counted(heading)
        for mark, counts, _ in counted:
            if mark == HEADING_MARK:
                above -= counts
        titled, shared = self._counted(title), Counter[str]()
        items = []
        for mark, counts, num_words in counted:
            if mark == HEADING_MARK:
                above, shared = counts, Counter()
            elif mark == SHARED_MARK:
                shared = counts
            elif mark == ITEM_MARK and (counts or above or shared):
                words: dict[str, float] = {}
                for weight, held in (
                    *((1.0, counts), (_ITEM_HEADING_WEIGHT, above)),
                    *((_ITEM_SHARED_WEIGHT, shared), (_ITEM_TITLE_WEIGHT, titled)),
                ):
                    for word, count in held.items():
                        words[word] = words.get(word, 0.0) + weight * count
                items.append(ItemWords(words, num_words))
        return tuple(items)


def _parts(body: str) -> list[tuple[str, list[str]]]:
    """(mark, words) of each part of a text; what stands before the first mark has none."""
    parts: list[tuple[str, list[str]]] = [("", [])]
    for word in body.split():
        if word in MARKS:
            parts.append((word, []))
        else:
            parts[-1][1].append(word)
    return parts


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
