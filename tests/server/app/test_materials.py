"""Files become materials: encodings, parsers, and an import that repeats for free."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select, text

from server.app.materials.errors import (
    CourseFileError,
    UndecodableTextError,
    UnsupportedMaterialError,
)
from server.app.materials.importer import MaterialImporter
from server.app.materials.parser import is_supported, parser_for
from server.app.materials.text import decode_text
from server.app.passages import PassageLimits
from server.store.database import Database, sqlite_url
from server.store.schema import Material, PassageRow

pytestmark = pytest.mark.anyio

SAMPLE = Path(__file__).parents[3] / "server" / "app" / "sample_course"
CHINESE = "前缀缓存按块哈希复用键值，分块预填充切开长提示词。"


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (CHINESE.encode(), "utf-8"),
        (b"\xef\xbb\xbf" + CHINESE.encode(), "utf-8-sig"),
        (CHINESE.encode("gb18030"), "gb18030"),
        (CHINESE.encode("utf-16"), "utf-16"),
        (b"\xfe\xff" + CHINESE.encode("utf-16-be"), "utf-16"),
        (CHINESE.encode("utf-32"), "utf-32"),
    ],
)
def test_chinese_text_is_read_in_its_encoding(data: bytes, encoding: str) -> None:
    decoded = decode_text(data)
    assert decoded.text == CHINESE
    assert decoded.encoding == encoding


def test_a_guess_comes_last() -> None:
    russian = "Планировщик выбирает запросы на каждом шаге и делит между ними бюджет. " * 8
    decoded = decode_text(russian.encode("utf-16-le")[:-1] + b"\xff")
    assert decoded.encoding not in ("utf-8", "gb18030")


def test_nul_is_removed_and_line_ends_are_one() -> None:
    assert decode_text(b"Chunked\x00 prefill\r\nsplits\ra prompt.\n").text == (
        "Chunked prefill\nsplits\na prompt.\n"
    )


def test_bytes_that_are_no_text_are_refused_by_name() -> None:
    with pytest.raises(UndecodableTextError, match=r"photo\.txt"):
        decode_text(bytes(range(256)) * 8 + b"\xff\xff", name="photo.txt")


@given(st.text())
def test_utf8_is_read_as_it_is(written: str) -> None:
    data = ("x" + written).encode("utf-8", "ignore")
    expected = data.decode().replace("\x00", "").replace("\r\n", "\n").replace("\r", "\n")
    assert decode_text(data).text == expected


def test_the_title_is_the_first_heading_or_the_file_name() -> None:
    parse = parser_for("lab1.md").parse
    assert parse("lab1.md", b"intro\n\n# Lab 1: *Tokens*\n").title == "Lab 1: Tokens"
    assert parse("lab1.md", b"no heading\n").title == "lab1"


def test_plain_text_takes_its_first_line_as_title() -> None:
    document = parser_for("NOTES.TXT").parse("NOTES.TXT", b"\nOffice hours\n\nTuesday.\n")
    assert document.title == "Office hours"
    assert not document.sections[0].is_markdown


def test_other_formats_are_refused_with_what_is_supported() -> None:
    assert not is_supported("slides.key")
    with pytest.raises(UnsupportedMaterialError, match=r"slides\.key.*\.md.*\.txt"):
        parser_for("slides.key")


@pytest.fixture
async def database(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Database]:
    database = Database(sqlite_url(tmp_path / "store" / "lectern.db"))
    await database.open()
    yield database
    await database.close()


async def count_by_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


async def contents(database: Database) -> tuple[dict[str, str], int, int]:
    """Material ids by name, and the numbers of passages and of index rows."""
    async with database.session() as session:
        materials = {m.name: m.id for m in await session.scalars(select(Material))}
        num_passages = await session.scalar(select(func.count()).select_from(PassageRow))
        num_indexed = await session.scalar(text("SELECT count(*) FROM passage_fts"))
    return materials, num_passages or 0, num_indexed or 0


async def test_the_sample_course_is_imported_once(database: Database) -> None:
    importer = MaterialImporter(database, count_by_words)
    seen: list[tuple[str, int, int]] = []
    course = await importer.import_course(SAMPLE, on_progress=lambda *step: seen.append(step))
    before = await contents(database)
    assert course.title == "SYS 341 Inference Engines"
    assert len(course.suggestions) == 6
    assert [(done, total) for _, done, total in seen] == [(i, 22) for i in range(1, 23)]
    assert len(before[0]) == 22
    assert before[1] == before[2] > 100
    await importer.import_course(SAMPLE)
    assert await contents(database) == before
    async with database.session() as session:
        lab = await session.scalar(select(Material).where(Material.name == "lab4.zh.md"))
        assert lab is not None
        assert (lab.kind, lab.week, lab.title) == ("lab", 12, "实验四：流式服务器")


async def test_other_limits_make_the_passages_anew(database: Database) -> None:
    await MaterialImporter(database, count_by_words).import_course(SAMPLE)
    usual = await contents(database)
    larger = MaterialImporter(database, count_by_words, PassageLimits(least=150, most=400))
    await larger.import_course(SAMPLE)
    joined = await contents(database)
    assert joined[0].keys() == usual[0].keys()
    assert joined[1] == joined[2] < usual[1] / 2


async def test_an_unchanged_file_keeps_its_rows_and_a_changed_one_is_replaced(
    database: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "course"
    folder.mkdir()
    (folder / "course.json").write_text(json.dumps({"slug": "x", "title": "X"}), "utf-8")
    (folder / "a.md").write_text("# A\n\n## One\n\nfirst words\n", "utf-8")
    (folder / "b.txt").write_text("Notes\n\nsecond words\n", "utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    importer = MaterialImporter(database, count_by_words)
    course = await importer.import_course(folder)
    before = await contents(database)
    await importer.import_course(folder)
    assert await contents(database) == before

    (folder / "a.md").write_text("# A\n\n## One\n\nthird words\n", "utf-8")
    result = await importer.import_folder(course.id, folder)
    after = await contents(database)
    assert result.changed == ("a.md",)
    assert after[0]["b.txt"] == before[0]["b.txt"]
    assert after[0]["a.md"] != before[0]["a.md"]
    assert after[1:] == before[1:]
    async with database.session() as session:
        texts = list(await session.scalars(select(PassageRow.text).order_by(PassageRow.id)))
    assert "third words" in texts
    assert "first words" not in texts


async def test_a_wrong_course_file_is_told_by_name(database: Database, tmp_path: Path) -> None:
    importer = MaterialImporter(database, count_by_words)
    with pytest.raises(CourseFileError, match=r"course\.json cannot be read"):
        await importer.import_course(tmp_path)
    shutil.copytree(SAMPLE, tmp_path / "copy")
    (tmp_path / "copy" / "course.json").write_text('{"slug": "x", "titel": "X"}', "utf-8")
    with pytest.raises(CourseFileError, match=r"titel|title"):
        await importer.import_course(tmp_path / "copy")
