"""The evaluation courses of `scripts/eval_courses`: questions, and courses put into a database.

A passage answers a question when it is of the question's file and holds its evidence (or the file
and evidence of one of `also`), compared by letters and digits alone: so passages of any size, and
tables spelled in any way, can be judged.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path

import msgspec
import regex

from server.app.materials.course_folder import CourseFile
from server.app.materials.document import ParseLimits, PassageLimits, PassageText
from server.app.materials.parser import MaterialSource, is_supported, no_progress, parser_for
from server.app.passages import split
from server.app.retrieval import Viewer
from server.store.analysis import index_words, is_han, title_words
from server.store.database import Database
from server.store.ids import new_id
from server.store.passage_index import IndexedWords, passage_index
from server.store.passage_items import body_words
from server.store.schema import Course, Material, PassageRow

FOLDER = Path(__file__).parent / "eval_courses"
COURSES = ("networks", "chuanganqi", "dbsys")


class Place(msgspec.Struct, frozen=True):
    """Where an answer stands: words of a file that stand in no other place."""

    file: str
    evidence: str


class Question(msgspec.Struct, frozen=True):
    """A question about a course. `lang`: en, zh, or mixed for one that mixes them; `history`:
    the questions before it; `asked_on`: the day it is asked on, where that matters; `split`: dev
    for those that anything may be chosen with, test for those that only judge."""

    id: str
    course: str
    lang: str
    kind: str
    question: str
    history: list[str]
    asked_on: date | None
    file: str | None
    evidence: str | None
    answer: str | None
    split: str
    also: list[Place] = []

    @property
    def language(self) -> str:
        """en or zh: what its reader wants to read."""
        return "zh" if is_han(self.question) else "en"

    @property
    def is_answerable(self) -> bool:
        return self.kind != "unanswerable"

    @property
    def places(self) -> list[Place]:
        """All places that answer it; none also when the calendar itself is the answer."""
        if self.file is None or self.evidence is None:
            return []
        return [Place(self.file, self.evidence), *self.also]

    @property
    def viewer(self) -> Viewer:
        """Somebody who asks it on its day, at noon."""
        if self.asked_on is None:
            return Viewer("")
        return Viewer("", now=datetime.combine(self.asked_on, time(12), UTC))


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A passage of a course as every system sees it."""

    id: str
    file: str
    title: str
    heading: str
    text: str

    @property
    def whole(self) -> str:
        """All there is to search in."""
        return f"{self.title} › {self.heading}\n{self.text}"

    def answers(self, question: Question) -> bool:
        """Whether it holds one of the question's places."""
        compared = letters(self.text)
        return any(
            self.file == place.file and letters(place.evidence) in compared
            for place in question.places
        )


@dataclass(frozen=True, slots=True)
class StoredCourse:
    """A course in a database, with its passages by id."""

    id: str
    passages: dict[str, StoredPassage]

    def rank(self, question: Question, ids: Sequence[str]) -> int | None:
        """The place, from 1, of the first of `ids` that answers the question."""
        for n, passage_id in enumerate(ids, start=1):
            if self.passages[passage_id].answers(question):
                return n
        return None


def letters(text: str) -> str:
    """`text` as evidence is compared."""
    return str(regex.sub(r"[^\p{L}\p{N}]", "", unicodedata.normalize("NFKC", text)))


def load_questions() -> list[Question]:
    """All questions, in order of the file."""
    lines = (FOLDER / "questions.jsonl").read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Question) for line in lines]


async def store_course(
    database: Database,
    folder: Path,
    limits: PassageLimits | None = None,
    others: Sequence[tuple[str, str, PassageText]] = (),
) -> StoredCourse:
    """The course of a folder, and `others` in it: (file, title, passage) of documents
    that have nothing to do with it."""
    course = msgspec.json.decode((folder / "course.json").read_bytes(), type=CourseFile)
    index = passage_index(database)
    stored = StoredCourse(new_id(), {})
    async with database.transaction() as session:
        session.add(
            Course(
                id=stored.id,
                slug=course.slug,
                title=course.title,
                language=course.language,
                starts_on=course.starts_on,
                num_weeks=course.num_weeks,
                timezone=course.timezone,
            )
        )
        await session.flush()
        made: list[tuple[Material, list[PassageText]]] = []
        for path in _files_of(folder):
            note = course.given_for(path.name)
            data = path.read_bytes()
            parser = parser_for(path.name, data[:1024])
            document = parser.parse(MaterialSource(path.name, data), ParseLimits(), no_progress)
            kind = note.kind or "other"
            material = Material(
                id=new_id(),
                course_id=stored.id,
                name=path.name,
                title=document.title,
                kind=kind,
                week=note.week,
                text=document.text,
            )
            made.append((material, split(document, limits or PassageLimits())))
        for file, title, passage in others:
            material = Material(id=new_id(), course_id=stored.id, name=file, title=title)
            made.append((material, [passage]))
        session.add_all([material for material, _ in made])
        await session.flush()
        for material, passages in made:
            kept = [(new_id(), passage) for passage in passages]
            session.add_all(
                PassageRow(
                    id=id,
                    material_id=material.id,
                    course_id=stored.id,
                    position=n,
                    heading=passage.heading,
                    locator=passage.locator,
                    text=passage.text,
                    num_tokens=passage.num_tokens,
                    language=passage.language,
                )
                for n, (id, passage) in enumerate(kept)
            )
            await session.flush()
            title = title_words(
                material.title, material.name, kind=material.kind, week=material.week
            )
            words = [(id, _words(title, passage)) for id, passage in kept]
            await index.add(session, stored.id, material.id, words)
            for id, passage in kept:
                stored.passages[id] = StoredPassage(
                    id,
                    material.name,
                    material.title,
                    " › ".join(passage.headings[1:]),
                    passage.text,
                )
    return stored


def _files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if is_supported(path.name)]


def _words(title: str, passage: PassageText) -> IndexedWords:
    heading = " ".join(index_words(" ".join(passage.headings[1:])))
    return IndexedWords(title, heading, " ".join(body_words(passage.text)))
