"""A material's text in parts, and its file as it came, for those who may read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import event

from server.app.api_replies import etag_reply
from server.store.schema import PassageRow
from tests.server.app.site import QUESTION, Site, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

UPLOAD = "/api/courses/demo/materials"
MARK = "The zebra crossing is in room Z9, and nowhere else at all."


def pages(mark: str = MARK) -> bytes:
    """A text of some 20,000 characters with `mark` at its middle."""
    words = "".join(
        f"## Part {n}\n\nIn part {n} paging is told in some more words.\n\n" for n in range(160)
    )
    return f"# Book\n\n{words}## Zebras\n\n{mark}\n\n{words}".encode()


@dataclass
class Shelf:
    """A site with a teacher of its course, a guest who reads, and a large material."""

    site: Site
    teacher: httpx.AsyncClient
    reader: httpx.AsyncClient
    material: str

    @property
    def path(self) -> str:
        return f"/api/materials/{self.material}"

    async def part(self, **query: Any) -> dict[str, Any]:
        reply = await self.reader.get(self.path, params=query)
        assert reply.status_code == 200, reply.text
        found: dict[str, Any] = reply.json()
        return found

    async def passage(self, word: str) -> dict[str, Any]:
        passages = (await self.teacher.get(f"{self.path}/passages")).json()["passages"]
        return next(one for one in passages if word in one["text"])


@asynccontextmanager
async def open_shelf(data_dir: Path, **options: Any) -> AsyncIterator[Shelf]:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(data_dir, **options))
        teacher = await stack.enter_async_context(
            site.client(await site.account("teacher", "tia", "demo"))
        )
        reader = await stack.enter_async_context(site.client())
        reply = await teacher.post(UPLOAD, files={"file": ("书 book.md", pages())})
        assert reply.status_code == 201, reply.text
        yield Shelf(site, teacher, reader, reply.json()["id"])


@pytest.fixture
async def shelf(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Shelf]:
    async with open_shelf(tmp_path) as shelf:
        yield shelf


async def test_the_part_around_a_passage(shelf: Shelf) -> None:
    whole = await shelf.part()
    assert {"offset", "total", "range"}.isdisjoint(whole)
    passage = await shelf.passage("zebra")
    found = await shelf.part(around=passage["id"], chars=3000)
    start, end = found["range"]
    assert MARK in whole["text"][start:end]
    assert end - start <= len(passage["text"]) + 200
    assert found["total"] == len(whole["text"])
    offset = found["offset"]
    assert whole["text"][offset : offset + len(found["text"])] == found["text"]
    assert offset <= start
    assert end <= offset + len(found["text"])
    assert 3000 <= len(found["text"]) <= 7000
    # Again, from memory.
    assert await shelf.part(around=passage["id"], chars=3000) == found


async def test_of_the_passages_only_the_places_are_read(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop, on which all answers stream, neither loads their texts nor makes the reply."""
    passages = (await shelf.teacher.get(f"{shelf.path}/passages")).json()["passages"]
    loaded: list[str] = []
    threads: set[int] = set()

    def note(row: PassageRow, _context: Any) -> None:
        loaded.append(row.id)

    def noted(*args: Any) -> Any:
        threads.add(get_ident())
        return etag_reply(*args)

    monkeypatch.setattr("server.app.api_materials.etag_reply", noted)
    event.listen(PassageRow, "load", note)
    try:
        whole = await shelf.reader.get(shelf.path)
        await shelf.part(offset=0)
        assert loaded == []
        await shelf.part(around=passages[1]["id"])
        assert loaded == [passages[1]["id"]]
    finally:
        event.remove(PassageRow, "load", note)
    assert get_ident() not in threads
    keys = ("heading", "locator", "place")
    places = [{key: passage[key] for key in keys} for passage in passages]
    found = whole.json()
    assert len(places) == found["num_passages"] > 10
    assert list(found)[-4:] == ["locator", "text", "places", "has_original"]
    assert found["places"] == places
    assert whole.content == msgspec.json.encode(found | {"places": places})


async def test_the_parts_before_and_after(shelf: Shelf) -> None:
    whole, found = await shelf.part(), await shelf.part(offset=0, chars=5000)
    joined = found["text"]
    while len(joined) < found["total"]:
        found = await shelf.part(offset=len(joined), chars=5000)
        assert (found["offset"], found["range"]) == (len(joined), None)
        joined += found["text"]
    assert joined == whole["text"]
    assert (await shelf.part(offset=10**8))["text"] == ""


async def test_a_passage_of_an_earlier_reading_is_found_by_who_was_shown_it(
    tmp_path: Path, database_url: str
) -> None:
    async with open_shelf(tmp_path / "data", database_url=database_url) as shelf:
        events = await shelf.site.answer("Where is the zebra crossing?", course="demo")
        (shown,) = [p for p in events["retrieval"][0]["passages"] if "zebra" in p["text"]]
        renewed = pages().replace(b"# Book\n", b"# Book\n\nA new beginning.\n")
        reply = await shelf.teacher.put(f"{shelf.path}/file", files={"file": ("book.md", renewed)})
        assert reply.status_code == 200, reply.text
        assert (await shelf.passage("zebra"))["id"] != shown["id"]
        found = await shelf.part(around=shown["id"])
        start, end = found["range"]
        assert MARK in (await shelf.part())["text"][start:end]
        # To the teacher, whom no answer showed it, the id means nothing.
        reply = await shelf.teacher.get(shelf.path, params={"around": shown["id"]})
        assert (reply.status_code, reply.json()["range"], reply.json()["offset"]) == (200, None, 0)


async def test_a_passage_that_is_gone_has_no_place(shelf: Shelf) -> None:
    events = await shelf.site.answer("Where is the zebra crossing?", course="demo")
    (shown,) = [p for p in events["retrieval"][0]["passages"] if "zebra" in p["text"]]
    assert (await shelf.part(around=shown["id"]))["range"] is not None
    other = pages("Nothing.").replace(b"paging is told in some more", b"other things stand in")
    reply = await shelf.teacher.put(f"{shelf.path}/file", files={"file": ("book.md", other)})
    assert reply.status_code == 200, reply.text
    found = await shelf.part(around=shown["id"])
    assert (found["range"], found["offset"]) == (None, 0)


async def test_a_passage_of_another_material_has_no_place(shelf: Shelf) -> None:
    events = await shelf.site.answer(QUESTION, course="demo")
    other = next(p for p in events["retrieval"][0]["passages"] if p["material"] != shelf.material)
    assert (await shelf.part(around=other["id"]))["range"] is None


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"chars": "999", "offset": "0"}, "chars"),
        ({"chars": "200001", "around": "x"}, "chars"),
        ({"offset": "-1"}, "offset"),
        ({"offset": "1", "around": "x"}, "offset"),
    ],
)
async def test_what_is_wrong_is_named(tmp_path: Path, query: dict[str, str], param: str) -> None:
    async with open_site(tmp_path) as site, site.client() as client:
        (material,) = (await client.get(UPLOAD)).json()["materials"]
        reply = await client.get(f"/api/materials/{material['id']}", params=query)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_what_has_not_changed_is_not_sent_again(shelf: Shelf) -> None:
    first = await shelf.reader.get(shelf.path, params={"offset": 0})
    tag = {"If-None-Match": first.headers["etag"]}
    assert (await shelf.reader.get(shelf.path, params={"offset": 0}, headers=tag)).content == b""
    await shelf.teacher.patch(shelf.path, json={"title": "Another"})
    again = await shelf.reader.get(shelf.path, params={"offset": 0}, headers=tag)
    assert (again.status_code, again.json()["title"]) == (200, "Another")
    await shelf.teacher.patch(shelf.path, json={"is_hidden": True})
    assert (await shelf.reader.get(shelf.path, headers=tag)).status_code == 404


async def test_the_file_comes_as_it_came_and_opens_nowhere(shelf: Shelf) -> None:
    assert (await shelf.part())["has_original"]
    reply = await shelf.reader.get(f"{shelf.path}/original")
    assert (reply.status_code, reply.content) == (200, pages())
    headers = reply.headers
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"] == "attachment; filename*=utf-8''%E4%B9%A6%20book.md"
    assert headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in headers["content-security-policy"]
    await shelf.teacher.patch(shelf.path, json={"is_hidden": True})
    assert (await shelf.reader.get(f"{shelf.path}/original")).status_code == 404
    assert (await shelf.teacher.get(f"{shelf.path}/original")).status_code == 200


async def test_a_file_that_is_not_kept_is_not_promised(shelf: Shelf) -> None:
    for kept in (shelf.site.app.library.files.path("x", "y").parent.parent).glob("*/*"):
        kept.unlink()
    assert (await shelf.reader.get(f"{shelf.path}/original")).status_code == 404
