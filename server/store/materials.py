"""Materials and their passages: rows, from waiting to ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Select, delete, false, func, not_, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from server.store.column_types import utc_now
from server.store.database import Database
from server.store.ids import new_id
from server.store.passage_index import IndexedWords, passage_index
from server.store.schema import Material, MaterialState, PassageRow

ROWS_A_STATEMENT = 200
"""Passages that are written at once: no other writer waits for more of a new material."""


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A passage that is to be stored, with its index words."""

    heading: str
    locator: str
    text: str
    num_tokens: int
    place: dict[str, int] | None
    language: str
    words: IndexedWords


@dataclass(frozen=True, slots=True)
class MaterialCard:
    """A material without its text, and the number of its passages."""

    material: Material
    num_passages: int


@dataclass(frozen=True, slots=True)
class PassagePlace:
    """Where a passage stands, without its text."""

    heading: str
    locator: str
    place: dict[str, int] | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of a material: its columns, and the words of its title where they change."""

    fields: dict[str, Any]
    title_words: str | None = None


Settle: TypeAlias = Callable[[Material], Settled]
"""Makes it from the row as it is when it is written: somebody may just have edited it."""


def is_shown(at: datetime) -> ColumnElement[bool]:
    """Whether students may see a material at that moment."""
    return (
        (Material.state == MaterialState.READY)
        & (Material.is_hidden == false())
        & or_(Material.visible_from.is_(None), Material.visible_from <= at)
    )


class Materials:
    """Repository of materials. Rows that it returns are detached: read them, never change them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._index = passage_index(database)

    async def get(self, material_id: str) -> Material | None:
        """One material with its text."""
        async with self._database.session() as session:
            return await session.get(Material, material_id, options=[undefer(Material.text)])

    async def card(self, material_id: str) -> MaterialCard | None:
        """One material without its text."""
        async with self._database.session() as session:
            rows = await session.execute(_cards().where(Material.id == material_id))
            return next((MaterialCard(*row) for row in rows), None)

    async def of_course(self, course_id: str) -> list[MaterialCard]:
        """All materials of a course, by week and name; those without a week come first."""
        async with self._database.session() as session:
            rows = await session.execute(
                _cards()
                .where(Material.course_id == course_id)
                .order_by(func.coalesce(Material.week, 0), Material.name, Material.id)
            )
            return [MaterialCard(*row) for row in rows]

    async def hidden_ids(self, course_id: str, at: datetime | None = None) -> list[str]:
        """Materials of the course that students may not see now (or `at`)."""
        async with self._database.session() as session:
            return list(
                await session.scalars(
                    select(Material.id).where(
                        Material.course_id == course_id, not_(is_shown(at or utc_now()))
                    )
                )
            )

    async def named(self, course_id: str, name: str) -> Material | None:
        """The oldest material of the course with this file name."""
        async with self._database.session() as session:
            return await session.scalar(
                select(Material)
                .where(Material.course_id == course_id, Material.name == name)
                .order_by(Material.id)
                .limit(1)
            )

    async def with_content(self, course_id: str, sha256: str) -> Material | None:
        """The material of the course with these bytes."""
        async with self._database.session() as session:
            return await session.scalar(_with_content(course_id, sha256))

    async def passages(self, material_id: str) -> list[PassageRow]:
        """The passages of a material, in order."""
        async with self._database.session() as session:
            return list(
                await session.scalars(
                    select(PassageRow)
                    .where(PassageRow.material_id == material_id)
                    .order_by(PassageRow.position)
                )
            )

    async def places(self, material_id: str) -> list[PassagePlace]:
        """Where the passages of a material stand, in order: of a large one thousands, so without
        their texts, and some at a time, between which the loop does other things."""
        query = (
            select(PassageRow.heading, PassageRow.locator, PassageRow.place)
            .where(PassageRow.material_id == material_id)
            .order_by(PassageRow.position)
        )
        async with self._database.session() as session:
            rows = await session.stream(query)
            return [
                PassagePlace(*row)
                async for part in rows.partitions(ROWS_A_STATEMENT)
                for row in part
            ]

    async def passage(self, material_id: str, passage_id: str) -> PassageRow | None:
        """One passage of a material."""
        async with self._database.session() as session:
            return await session.scalar(
                select(PassageRow).where(
                    PassageRow.id == passage_id, PassageRow.material_id == material_id
                )
            )

    async def add(self, material: Material) -> tuple[Material, bool]:
        """Stores a new row that waits to be read; where the course has these bytes already, that
        row comes back instead, and False."""
        try:
            async with self._database.transaction() as session:
                session.add(material)
                await session.flush()
                return material, True
        except IntegrityError:
            assert material.content_sha256 is not None
            found = await self.with_content(material.course_id, material.content_sha256)
            if found is None:  # a course or a person that is gone
                raise
            return found, False

    async def edit(self, material_id: str, settle: Settle) -> bool:
        """Changes columns of a material to what `settle` makes of it as it is now. False when it
        is gone."""
        async with self._database.transaction() as session:
            material = await _lock(session, material_id)
            if material is None:
                return False
            await self._settle(session, material, settle, indexed=None)
            return True

    async def begin(self, material_id: str) -> Material | None:
        """Marks a material that waits as being read, one more time, and returns it; None when it
        does not wait."""
        async with self._database.transaction() as session:
            material = await session.scalar(
                update(Material)
                .where(Material.id == material_id, Material.state == MaterialState.WAITING)
                .values(state=MaterialState.PARSING, attempts=Material.attempts + 1)
                .returning(Material)
            )
            if material is not None:
                # What an earlier try has left.
                await self._forget_passages(session, material_id)
            return material

    async def put_back(self, material_id: str) -> None:
        """A material whose reading was given up through no fault of its own waits again."""
        async with self._database.transaction() as session:
            await session.execute(
                update(Material)
                .where(Material.id == material_id, Material.state == MaterialState.PARSING)
                .values(state=MaterialState.WAITING, attempts=Material.attempts - 1)
            )

    async def fail(self, material_id: str, code: str, facts: dict[str, Any]) -> None:
        """A material cannot be read: it keeps no passages, and says why."""
        async with self._database.transaction() as session:
            await self._forget_passages(session, material_id)
            await session.execute(
                update(Material)
                .where(Material.id == material_id)
                .values(
                    state=MaterialState.FAILED,
                    error_code=code,
                    error_facts=facts,
                    warning=None,
                    updated_at=utc_now(),
                )
            )

    async def unfinished(self, max_attempts: int) -> tuple[list[Material], list[Material]]:
        """At start: the materials that still wait to be read, oldest first, and those that were
        being read `max_attempts` times when the server ended, which wait no more."""
        async with self._database.transaction() as session:
            await session.execute(
                update(Material)
                .where(Material.state == MaterialState.PARSING, Material.attempts < max_attempts)
                .values(state=MaterialState.WAITING)
            )
            rows = await session.scalars(
                select(Material)
                .where(Material.state.in_((MaterialState.WAITING, MaterialState.PARSING)))
                .order_by(Material.id)
            )
            left = list(rows)
            waiting = [material for material in left if material.state == MaterialState.WAITING]
            given_up = [material for material in left if material.state == MaterialState.PARSING]
            return waiting, given_up

    async def ready(self) -> list[Material]:
        """All materials that are ready and whose bytes are kept."""
        async with self._database.session() as session:
            return list(
                await session.scalars(
                    select(Material)
                    .where(
                        Material.state == MaterialState.READY,
                        Material.content_sha256.is_not(None),
                    )
                    .order_by(Material.id)
                )
            )

    async def finish(
        self, material_id: str, passages: Sequence[NewPassage], settle: Settle
    ) -> bool:
        """A material that is being read becomes ready with these passages, and what `settle`
        makes of it. They are written in several transactions; nobody finds them before the last.
        False when it is gone."""
        for begin in range(0, len(passages), ROWS_A_STATEMENT):
            async with self._database.transaction() as session:
                material = await _lock(session, material_id)
                if material is None:
                    return False
                await self._add_passages(
                    session, material, passages[begin : begin + ROWS_A_STATEMENT], begin
                )
        async with self._database.transaction() as session:
            material = await _lock(session, material_id)
            if material is None:
                return False
            await self._settle(session, material, settle, indexed=_title_words(passages))
            return True

    async def replace(
        self, material_id: str, passages: Sequence[NewPassage], settle: Settle
    ) -> bool:
        """Other passages in place of a material's own, in one transaction: a search finds the old
        ones or the new ones. False when it is gone. Raises IntegrityError where it would have the
        bytes of another material."""
        async with self._database.transaction() as session:
            material = await _lock(session, material_id)
            if material is None:
                return False
            await self._forget_passages(session, material_id)
            for begin in range(0, len(passages), ROWS_A_STATEMENT):
                await self._add_passages(
                    session, material, passages[begin : begin + ROWS_A_STATEMENT], begin
                )
            await self._settle(session, material, settle, indexed=_title_words(passages))
            return True

    async def delete(self, material_id: str) -> None:
        """Takes a material out, with its passages and their index rows."""
        async with self._database.transaction() as session:
            await self._forget_passages(session, material_id)
            await session.execute(delete(Material).where(Material.id == material_id))

    async def needs_content(self, course_id: str, sha256: str) -> bool:
        """Whether any material of the course has these bytes, or is to have them."""
        async with self._database.session() as session:
            found = await session.scalar(
                select(Material.id)
                .where(
                    Material.course_id == course_id,
                    or_(
                        Material.content_sha256 == sha256,
                        Material.renewal["sha256"].as_string() == sha256,
                    ),
                )
                .limit(1)
            )
            return found is not None

    async def set_renewal(self, material_id: str, row: dict[str, Any] | None) -> bool:
        """What a material is to become; None: it stays as it is. False when it is gone."""
        async with self._database.transaction() as session:
            changed = await session.scalar(
                update(Material)
                .where(Material.id == material_id)
                .values(renewal=row)
                .returning(Material.id)
            )
            return changed is not None

    async def to_renew(self) -> list[Material]:
        """At start: the materials whose renewal was not read yet, oldest first."""
        async with self._database.session() as session:
            rows = select(Material).where(Material.renewal.is_not(None)).order_by(Material.id)
            return list(await session.scalars(rows))

    async def _settle(
        self, session: AsyncSession, material: Material, settle: Settle, *, indexed: str | None
    ) -> None:
        """`indexed`: the words of the title that its passages are found by; None: not known."""
        settled = settle(material)
        await session.execute(
            update(Material)
            .where(Material.id == material.id)
            .values(**settled.fields, updated_at=utc_now())
        )
        if settled.title_words is not None and settled.title_words != indexed:
            await self._index.retitle(session, material.id, settled.title_words)

    async def _forget_passages(self, session: AsyncSession, material_id: str) -> None:
        await self._index.forget(session, material_id)
        await session.execute(delete(PassageRow).where(PassageRow.material_id == material_id))

    async def _add_passages(
        self,
        session: AsyncSession,
        material: Material,
        passages: Sequence[NewPassage],
        first: int,
    ) -> None:
        rows = [
            PassageRow(
                id=new_id(),
                material_id=material.id,
                course_id=material.course_id,
                position=position,
                heading=passage.heading,
                locator=passage.locator,
                text=passage.text,
                num_tokens=passage.num_tokens,
                place=passage.place,
                language=passage.language,
            )
            for position, passage in enumerate(passages, start=first)
        ]
        session.add_all(rows)
        await session.flush()
        session.expunge_all()  # thousands of rows would stay
        await self._index.add(
            session,
            material.course_id,
            material.id,
            [(row.id, passage.words) for row, passage in zip(rows, passages, strict=True)],
        )


async def _lock(session: AsyncSession, material_id: str) -> Material | None:
    return await session.scalar(
        select(Material).where(Material.id == material_id).with_for_update()
    )


def _title_words(passages: Sequence[NewPassage]) -> str | None:
    return passages[0].words.title if passages else None


def _cards() -> Select[Material, int]:
    num_passages = (
        select(func.count())
        .where(PassageRow.material_id == Material.id)
        .correlate(Material)
        .scalar_subquery()
    )
    return select(Material, num_passages)


def _with_content(course_id: str, sha256: str) -> Select[Material]:
    return select(Material).where(
        Material.course_id == course_id, Material.content_sha256 == sha256
    )
