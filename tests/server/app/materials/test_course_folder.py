"""Course folders become materials, by an import that repeats for free."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from server.app.library_setup import folder_importer
from server.app.materials.course_folder import CourseFolders, files_below
from server.app.materials.document import ParseLimits
from server.app.materials.errors import CourseFileError
from server.store.database import Database, sqlite_url
from server.store.materials import Materials
from server.store.schema import Course, Material, PassageRow

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

SAMPLE = Path(__file__).parents[4] / "server" / "app" / "sample_course"


@pytest.fixture
async def database(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Database]:
    database = Database(sqlite_url(tmp_path / "store" / "lectern.db"))
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def importer(database: Database, tmp_path: Path) -> CourseFolders:
    return folder_importer(database, count_by_words, tmp_path / "data")


async def count_by_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


async def contents(database: Database) -> tuple[dict[str, str], int, int]:
    """Material ids by name, and the numbers of passages and of index rows."""
    async with database.session() as session:
        materials = {m.name: m.id for m in await session.scalars(select(Material))}
        num_passages = await session.scalar(select(func.count()).select_from(PassageRow))
        num_indexed = await session.scalar(text("SELECT count(*) FROM passage_fts"))
    return materials, num_passages or 0, num_indexed or 0


async def by_name(database: Database, name: str) -> Material:
    async with database.session() as session:
        material = await session.scalar(select(Material).where(Material.name == name))
    assert material is not None
    return material


def write_folder(folder: Path, **course: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "course.json").write_text(json.dumps({"slug": "x", "title": "X", **course}), "utf-8")
    (folder / "a.md").write_text("# A\n\n## One\n\nfirst words\n", "utf-8")
    (folder / "b.txt").write_text("Notes\n\nsecond words\n", "utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return folder


async def test_the_sample_course_is_imported_once(
    database: Database, importer: CourseFolders
) -> None:
    seen: list[tuple[str, int, int]] = []
    course = await importer.import_course(SAMPLE, on_progress=lambda *step: seen.append(step))
    before = await contents(database)
    assert course.title == "SYS 341 Inference Engines"
    assert len(course.suggestions) == 6
    assert [(done, total) for _, done, total in seen] == [(i, 22) for i in range(1, 23)]
    assert len(before[0]) == 22
    assert before[1] == before[2] > 22
    await importer.import_course(SAMPLE)
    assert await contents(database) == before
    lab = await by_name(database, "lab4.zh.md")
    assert (lab.kind, lab.week, lab.title) == ("lab", 12, "实验四：流式服务器")
    assert lab.edited == []


async def test_other_limits_make_the_passages_anew(
    database: Database, importer: CourseFolders, tmp_path: Path
) -> None:
    await importer.import_course(SAMPLE)
    usual = await contents(database)
    limits = ParseLimits(least_tokens=5, most_tokens=60)
    smaller = folder_importer(database, count_by_words, tmp_path / "data", limits)
    await smaller.import_course(SAMPLE)
    cut = await contents(database)
    assert cut[0] == usual[0]
    assert cut[1] == cut[2] > usual[1] * 2


async def test_a_changed_file_takes_the_place_of_what_it_was(
    database: Database, importer: CourseFolders, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "course")
    course = await importer.import_course(folder)
    before = await contents(database)
    old = await by_name(database, "a.md")
    kept = tmp_path / "data" / "materials" / course.id
    assert old.content_sha256 in {path.name for path in kept.iterdir()}

    (folder / "a.md").write_text("# A\n\n## One\n\nthird words\n", "utf-8")
    result = await importer.import_folder(course.id, folder)
    assert result.changed == ("a.md",)
    assert await contents(database) == before
    async with database.session() as session:
        texts = list(await session.scalars(select(PassageRow.text)))
    assert any("third words" in text for text in texts)
    assert not any("first words" in text for text in texts)
    assert old.content_sha256 not in {path.name for path in kept.iterdir()}
    assert len(list(kept.iterdir())) == 2


async def test_notes_are_brought_up_to_date_but_not_what_a_teacher_has_set(
    database: Database, importer: CourseFolders, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "course", materials=[{"file": "a", "kind": "lab", "week": 3}])
    await importer.import_course(folder)
    a = await by_name(database, "a.md")
    assert (a.kind, a.week) == ("lab", 3)
    await importer._library.edit(a, {"week": 9})
    shutil.rmtree(folder)
    write_folder(folder, materials=[{"file": "a", "kind": "exam", "week": 4}])
    await importer.import_course(folder)
    a = await by_name(database, "a.md")
    assert (a.kind, a.week, a.edited) == ("exam", 9, ["week"])
    (folder / "a.md").write_text("# Other title\n\nother words", "utf-8")
    await importer.import_course(folder)
    a = await by_name(database, "a.md")
    assert (a.title, a.kind, a.week) == ("Other title", "exam", 9)


async def test_a_file_that_cannot_be_read_leaves_the_others(
    database: Database, importer: CourseFolders, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_folder(tmp_path / "course")
    (folder / "a.md").write_bytes(b"%PDF-1.7 in truth")
    course = await importer.import_course(folder)
    cards = await Materials(database).of_course(course.id)
    assert {card.material.name: card.material.state for card in cards} == {
        "a.md": "failed",
        "b.txt": "ready",
    }
    assert "a.md is damaged" in caplog.text


async def test_the_calendar_is_in_the_course_file(
    database: Database, importer: CourseFolders, tmp_path: Path
) -> None:
    folder = write_folder(
        tmp_path / "course", starts_on="2026-09-07", num_weeks=16, timezone="Asia/Shanghai"
    )
    await importer.import_course(folder)
    async with database.session() as session:
        course = await session.scalar(select(Course))
    assert course is not None
    assert str(course.starts_on) == "2026-09-07"
    assert (course.num_weeks, course.timezone) == (16, "Asia/Shanghai")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"titel": "X"}, "titel"),
        ({"timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"num_weeks": 0}, "num_weeks"),
        ({"starts_on": "soon"}, "starts_on"),
        ({"materials": [{"file": "a", "kind": "song"}]}, "song"),
        ({"materials": [{"file": "a", "week": 99}]}, "week"),
    ],
)
async def test_a_wrong_course_file_is_told_by_name(
    importer: CourseFolders, tmp_path: Path, fields: dict[str, object], told: str
) -> None:
    folder = write_folder(tmp_path / "course", **fields)
    with pytest.raises(CourseFileError, match=rf"course\.json.*{told}"):
        await importer.import_course(folder)


async def test_a_missing_course_file_is_told(importer: CourseFolders, tmp_path: Path) -> None:
    with pytest.raises(CourseFileError, match=r"course\.json cannot be read"):
        await importer.import_course(tmp_path)


def test_what_systems_leave_in_a_folder_is_no_file_of_it(tmp_path: Path) -> None:
    for name in (
        "week01/a.md",
        "week01/.hidden.md",
        "__MACOSX/a.md",
        "~$x.docx",
        "b.pdf",
        ".git/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [file.name for file in files_below(tmp_path)] == ["b.pdf", "week01/a.md"]
