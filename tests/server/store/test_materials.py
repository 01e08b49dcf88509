"""Materials in the store: from waiting to ready, and nothing half-way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event, func, select
from sqlalchemy.exc import IntegrityError

from server.store import materials as module
from server.store.analysis import query_units
from server.store.courses import Courses
from server.store.database import Database
from server.store.materials import Materials, NewPassage, PassagePlace, Settled
from server.store.passage_index import IndexedWords, passage_index
from server.store.schema import Material, MaterialState, PassageRow

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]


def passage(word: str, title: str = "titl") -> NewPassage:
    words = IndexedWords(title, "", word)
    return NewPassage("Heading", "p. 1", f"The {word}.", 3, {"page": 1}, "en", words)


def ready(**fields: object) -> Settled:
    return Settled({"state": MaterialState.READY, **fields})


async def new_material(database: Database, sha256: str = "a" * 64, **fields: object) -> Material:
    course = await Courses(database).put("x", title="X")
    material = Material(
        **{
            "course_id": course.id,
            "name": "a.md",
            "title": "A",
            "state": MaterialState.WAITING,
            "content_sha256": sha256,
            **fields,
        }
    )
    found, is_new = await Materials(database).add(material)
    assert is_new
    return found


async def found_words(database: Database, material: Material, words: Sequence[str]) -> list[str]:
    """Those of the words under which something of the course is found."""
    index = passage_index(database)
    async with database.session() as session:
        return [
            word
            for word in words
            if await index.search(session, material.course_id, query_units(word), limit=5)
        ]


async def num_passages(database: Database) -> int:
    async with database.session() as session:
        return await session.scalar(select(func.count()).select_from(PassageRow)) or 0


async def test_the_same_bytes_are_one_material(database: Database) -> None:
    first = await new_material(database)
    again = Material(course_id=first.course_id, name="b.md", title="B", content_sha256="a" * 64)
    found, is_new = await Materials(database).add(again)
    assert (found.id, found.name, is_new) == (first.id, "a.md", False)
    other = await Courses(database).put("y", title="Y")
    elsewhere = Material(course_id=other.id, name="b.md", title="B", content_sha256="a" * 64)
    assert (await Materials(database).add(elsewhere))[1]


async def test_a_material_is_ready_with_all_of_its_passages(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_A_STATEMENT", 2)
    materials = Materials(database)
    material = await new_material(database)
    begun = await materials.begin(material.id)
    assert begun is not None
    assert (begun.state, begun.attempts) == (MaterialState.PARSING, 1)
    assert await materials.begin(material.id) is None
    passages = [passage(word) for word in ("alpha", "beta", "gamma", "delta", "epsilon")]
    assert await materials.finish(material.id, passages, lambda _: ready(title="New"))
    rows = await materials.passages(material.id)
    assert [row.position for row in rows] == [0, 1, 2, 3, 4]
    assert rows[0].place == {"page": 1}
    card = await materials.card(material.id)
    assert card is not None
    assert (card.num_passages, card.material.title) == (5, "New")
    assert await found_words(database, material, ["alpha", "epsilon", "zeta"]) == [
        "alpha",
        "epsilon",
    ]


async def test_places_come_in_order_without_the_texts(database: Database) -> None:
    materials = Materials(database)
    material = await new_material(database)
    await materials.begin(material.id)
    passages = [
        replace(passage("alpha"), heading=f"Part {n}", place={"page": n} if n % 3 else None)
        for n in range(2 * module.ROWS_A_STATEMENT + 1)
    ]
    assert await materials.finish(material.id, passages, lambda _: ready())
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    engine = database._reader.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        places = await materials.places(material.id)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert places == [PassagePlace(row.heading, row.locator, row.place) for row in passages]
    (statement,) = (one for one in statements if "passage" in one)
    assert "passage.text" not in statement
    assert await materials.places("nothing") == []


async def test_what_a_cut_reading_has_left_is_gone_at_the_next(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_A_STATEMENT", 1)
    materials = Materials(database)
    material = await new_material(database)
    await materials.begin(material.id)

    def die(_: Material) -> Settled:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await materials.finish(material.id, [passage("alpha"), passage("beta")], die)
    assert await num_passages(database) == 2
    waiting, given_up = await materials.unfinished(2)
    assert ([m.id for m in waiting], given_up) == ([material.id], [])
    await materials.begin(material.id)
    assert await num_passages(database) == 0
    await materials.finish(material.id, [passage("gamma")], lambda _: ready())
    assert await found_words(database, material, ["alpha", "gamma"]) == ["gamma"]


async def test_a_material_that_ends_the_server_twice_is_given_up(database: Database) -> None:
    materials = Materials(database)
    material = await new_material(database)
    for _ in range(2):
        await materials.begin(material.id)
        waiting, given_up = await materials.unfinished(2)
    assert (waiting, [m.id for m in given_up]) == ([], [material.id])


async def test_what_was_put_back_was_no_attempt(database: Database) -> None:
    materials = Materials(database)
    material = await new_material(database)
    for _ in range(3):
        assert await materials.begin(material.id) is not None
        await materials.put_back(material.id)
    waiting, _ = await materials.unfinished(2)
    assert [m.attempts for m in waiting] == [0]


async def test_a_replacement_that_fails_leaves_everything(database: Database) -> None:
    materials = Materials(database)
    material = await new_material(database)
    await new_material(database, "b" * 64, name="b.md")
    await materials.begin(material.id)
    await materials.finish(material.id, [passage("alpha")], lambda _: ready())
    with pytest.raises(IntegrityError):
        await materials.replace(
            material.id, [passage("beta")], lambda _: ready(content_sha256="b" * 64)
        )
    assert await found_words(database, material, ["alpha", "beta"]) == ["alpha"]
    assert await materials.replace(
        material.id, [passage("beta")], lambda _: ready(content_sha256="c" * 64)
    )
    assert await found_words(database, material, ["alpha", "beta"]) == ["beta"]


async def test_what_was_deleted_meanwhile_stays_away(database: Database) -> None:
    materials = Materials(database)
    material = await new_material(database)
    await materials.begin(material.id)
    await materials.delete(material.id)
    assert not await materials.finish(material.id, [passage("alpha")], lambda _: ready())
    assert not await materials.replace(material.id, [passage("alpha")], lambda _: ready())
    assert not await materials.edit(material.id, lambda _: ready())
    assert await num_passages(database) == 0
    assert await found_words(database, material, ["alpha"]) == []


async def test_a_failure_has_no_passages_and_a_reason(database: Database) -> None:
    materials = Materials(database)
    material = await new_material(database)
    await materials.begin(material.id)
    await materials.fail(material.id, "too_many_pages", {"pages": 9000, "most": 3000})
    found = await materials.get(material.id)
    assert found is not None
    assert (found.state, found.error_code) == (MaterialState.FAILED, "too_many_pages")
    assert found.error_facts == {"pages": 9000, "most": 3000}


async def test_an_edit_changes_the_words_of_the_title(database: Database) -> None:
    materials = Materials(database)
    material = await new_material(database)
    await materials.begin(material.id)
    await materials.finish(material.id, [passage("alpha", "old")], lambda _: ready())
    assert await found_words(database, material, ["old", "fresh"]) == ["old"]
    await materials.edit(material.id, lambda now: Settled({"title": "Fresh"}, "fresh"))
    assert await found_words(database, material, ["old", "fresh"]) == ["fresh"]


async def test_an_edit_sees_the_row_as_it_is(database: Database) -> None:
    materials = Materials(database)
    material = await new_material(database)
    for _ in range(2):
        await materials.edit(material.id, lambda now: Settled({"title": f"{now.title}!"}))
    found = await materials.get(material.id)
    assert found is not None
    assert found.title == "A!!"


async def test_students_see_what_is_ready_shown_and_due(database: Database) -> None:
    now = datetime.now(UTC)
    hour = timedelta(hours=1)
    rows: dict[str, dict[str, object]] = {
        "ready": {},
        "due": {"visible_from": now - hour},
        "hidden": {"is_hidden": True},
        "early": {"visible_from": now + hour},
        "waiting": {"state": MaterialState.WAITING},
        "failed": {"state": MaterialState.FAILED},
    }
    ids = {}
    for n, (name, fields) in enumerate(rows.items()):
        fields = {"state": MaterialState.READY, **fields}
        row = await new_material(database, f"{n:064}", name=name, **fields)
        ids[row.id], course_id = name, row.course_id
    materials = Materials(database)
    hidden = {ids[id] for id in await materials.hidden_ids(course_id)}
    assert hidden == {"hidden", "early", "waiting", "failed"}
    later = {ids[id] for id in await materials.hidden_ids(course_id, now + 2 * hour)}
    assert later == {"hidden", "waiting", "failed"}


async def test_materials_are_listed_by_week_and_name(database: Database) -> None:
    for n, (name, week) in enumerate([("b", 2), ("a", 2), ("z", None), ("c", 1)]):
        row = await new_material(database, f"{n:064}", name=name, week=week)
    cards = await Materials(database).of_course(row.course_id)
    assert [card.material.name for card in cards] == ["z", "c", "a", "b"]
