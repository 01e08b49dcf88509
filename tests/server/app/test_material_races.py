"""Two requests at once about one material, or one that meets the server's end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.app.materials.import_jobs import ImportedFile
from server.service.errors import ConflictError
from tests.server.app.site import Site, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

MATERIALS = "/api/courses/demo/materials"


def handout(n: int) -> dict[str, Any]:
    return {"file": (f"v{n}.md", f"# Version {n}\n\nThe version number {n} of it.".encode())}


async def material(client: httpx.AsyncClient, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = (await client.get(MATERIALS)).json()["materials"]
    return next(one for one in found if one["name"] == name)


async def failed_material(site: Site, client: httpx.AsyncClient) -> str:
    """The id of one whose reading has failed by no fault of its own."""
    made = (await client.post(MATERIALS, files=handout(1))).json()["id"]
    await site.app.library.materials.fail(made, "parser_crashed", {"name": "v1.md"})
    return str(made)


async def test_one_of_two_replacements_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were accepted, and one of them was lost where the server ended between them."""
    async with open_site(tmp_path) as site:
        parser, may_read = site.app.library.parser, asyncio.Event()
        parse = parser.parse

        async def parse_late(*args: Any, **options: Any) -> Any:
            await may_read.wait()
            return await parse(*args, **options)

        monkeypatch.setattr(parser, "parse", parse_late)
        teacher = await site.account("teacher", "lin", "demo")
        async with site.client(teacher) as client:
            path = f"/api/materials/{(await material(client, 'staff.en.md'))['id']}/file"
            puts = [asyncio.create_task(client.put(path, files=handout(n))) for n in range(2)]
            (refused,), (taken,) = await asyncio.wait(puts, return_when=asyncio.FIRST_COMPLETED)
            assert refused.result().status_code == 409
            may_read.set()
            reply = await taken
            assert reply.status_code == 200
            assert (await material(client, reply.json()["name"]))["state"] == "ready"


async def test_two_retries_are_one_reading(tmp_path: Path) -> None:
    """The second was told that the material had been deleted."""
    async with open_site(tmp_path) as site:
        teacher = await site.account("teacher", "lin", "demo")
        async with site.client(teacher) as client:
            path = f"/api/materials/{await failed_material(site, client)}/retry"
            replies = await asyncio.gather(client.post(path), client.post(path))
            assert {reply.status_code for reply in replies} <= {200, 409}
            assert 200 in {reply.status_code for reply in replies}
            assert (await material(client, "v1.md"))["state"] == "ready"


async def test_a_retry_that_comes_late_leaves_a_ready_material_alone(tmp_path: Path) -> None:
    """It put the material back into the line, and its passages were gone until it was read."""
    async with open_site(tmp_path) as site:
        teacher = await site.account("teacher", "lin", "demo")
        async with site.client(teacher) as client:
            row = await site.app.library.materials.get(await failed_material(site, client))
            assert row is not None
            assert (await client.post(f"/api/materials/{row.id}/retry")).status_code == 200
            with pytest.raises(ConflictError, match="Only a material that failed"):
                await site.app.library.retry(row)
            assert (await material(client, "v1.md"))["state"] == "ready"


async def test_what_comes_in_at_the_end_is_answered_and_waits_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry, and an upload that was being stored, joined a line that nobody worked on."""
    async with open_site(tmp_path) as site:
        library = site.app.library
        teacher = await site.account("teacher", "lin", "demo")
        async with site.client(teacher) as client:
            failed = await failed_material(site, client)
            store, stored, ended = library.store, asyncio.Event(), asyncio.Event()

            async def store_slowly(*args: Any) -> Any:
                row = await store(*args)
                stored.set()
                await ended.wait()
                return row

            monkeypatch.setattr(library, "store", store_slowly)
            upload = asyncio.create_task(client.post(MATERIALS, files=handout(2)))
            await stored.wait()
            await library.stop()
            ended.set()
            async with asyncio.timeout(20):
                assert (await upload).status_code == 201
                assert (await client.post(f"/api/materials/{failed}/retry")).status_code == 503
            assert (await material(client, "v2.md"))["state"] == "waiting"


async def test_a_reading_that_is_put_after_the_end_is_put_off(tmp_path: Path) -> None:
    async with open_site(tmp_path) as site:
        library = site.app.library
        row = (await library.materials.ready())[0]
        await library.stop()
        file: ImportedFile = await library._put(row)
        assert file.over.is_set()
