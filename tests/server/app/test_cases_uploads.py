"""Recorded faults of uploads elsewhere, played here, on both databases where they store."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from server.store.database import sqlite_url
from tests.server.app.site import Site, open_site
from tests.support.cases import CASES
from tests.support.cases import case as load_case

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

ROOT = Path(__file__).parents[3]
UPLOAD = "/api/courses/demo/materials"
STORED = ["UPL-01", "UPL-03", "PER-04"]
NUM_LINES = {"UPL-01": 3, "UPL-03": 3, "PER-04": 2}
REFUSED = ["UPL-05", "UPL-07", "UPL-08"]


@pytest.fixture
async def site(tmp_path: Path, database_url: str) -> AsyncIterator[Site]:
    async with open_site(tmp_path, database_url=database_url) as site:
        yield site


@pytest.fixture
async def sqlite_site(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Site]:
    async with open_site(tmp_path, database_url=sqlite_url(tmp_path / "lectern.db")) as site:
        yield site


@pytest.fixture
async def teacher(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    async with site.client(await site.account("teacher", "tia", "demo")) as client:
        yield client


def form(name: str) -> tuple[str, tuple[str, bytes]]:
    return "file", (name, (CASES / name).read_bytes())


async def names(client: httpx.AsyncClient) -> dict[str, str]:
    """State of each material by name."""
    found = (await client.get(UPLOAD)).json()["materials"]
    return {material["name"]: material["state"] for material in found}


@pytest.mark.parametrize("case_id", STORED)
async def test_text_is_stored_as_it_was_meant(
    site: Site, teacher: httpx.AsyncClient, case_id: str
) -> None:
    case = load_case(case_id)
    expect = case["expect"]
    expect = next(iter(expect.get("any_of", [expect])))
    reply = await teacher.post(UPLOAD, files=[form(case["input"]["file"])])
    assert reply.status_code in expect["status_any_of"], reply.text
    material = (await teacher.get(f"/api/materials/{reply.json()['id']}")).json()
    for wanted in expect.get("text_contains", []):
        assert wanted in material["text"]
    for unwanted in expect["text_lacks"]:
        assert unwanted not in material["text"]
    assert material["text"].startswith(expect.get("text_begins", ""))
    assert len(material["text"].splitlines()) == NUM_LINES[case_id]
    events = await site.answer(case["input"]["then_search"], course="demo")
    assert events["retrieval"][0]["passages"][0]["material"] == material["id"]


@pytest.mark.parametrize("case_id", REFUSED)
async def test_what_cannot_be_read_is_told_and_found_nowhere(
    sqlite_site: Site, case_id: str
) -> None:
    name = load_case(case_id)["input"]["file"]
    site = sqlite_site
    async with site.client(await site.account("teacher", "tia", "demo")) as teacher:
        await refused(site, teacher, case_id, name)


async def refused(site: Site, teacher: httpx.AsyncClient, case_id: str, name: str) -> None:
    reply = await teacher.post(UPLOAD, files=[form(name)])
    assert reply.status_code == 422
    error = reply.json()["error"]
    assert error["param"] == "file"
    assert name in error["message"]
    words = {
        "UPL-05": ("password", "密码"),
        "UPL-07": ("scanned", "扫描"),
        "UPL-08": ("MiB", "MiB"),
    }
    english, chinese = words[case_id]
    assert english in error["message"]
    assert chinese in error["message_zh"]
    assert await names(teacher) == {"staff.en.md": "ready", name: "failed"}
    # Listing and asking go on, and the file is no source of anything.
    events = await site.answer(f"What does {name} say?", course="demo")
    titles = [passage["title"] for passage in events["retrieval"][0]["passages"]]
    assert all(title == "Staff" for title in titles)


async def test_a_batch_keeps_its_good_files(site: Site, teacher: httpx.AsyncClient) -> None:
    files = [
        "lecture3_gbk.txt",
        "locked_needs_password.pdf",
        "nul_inside.txt",
        "inflates_to_192MiB.docx",
        "scanned_image_only.pdf",
        "notes_utf8_bom_crlf.txt",
    ]
    reply = await teacher.post(UPLOAD, files=[form(name) for name in files])
    assert reply.status_code == 202
    job = reply.json()
    assert [file["name"] for file in job["files"]] == files
    async with asyncio.timeout(30):
        while job["done"] < job["total"]:
            job = (await teacher.get(f"/api/imports/{job['import']}")).json()
            await asyncio.sleep(0.02)
    states = {file["name"]: file["state"] for file in job["files"]}
    good = {"lecture3_gbk.txt", "nul_inside.txt", "notes_utf8_bom_crlf.txt"}
    assert {name for name, state in states.items() if state == "ready"} == good
    codes = {file["name"]: file["error"]["code"] for file in job["files"] if file["error"]}
    assert codes == {
        "locked_needs_password.pdf": "password_required",
        "inflates_to_192MiB.docx": "inflates_too_much",
        "scanned_image_only.pdf": "no_text",
    }


async def test_a_small_file_cannot_swell(sqlite_site: Site, tmp_path: Path) -> None:
    """UPL-08: time, memory of the server and of its processes, leftovers, health meanwhile."""
    case = load_case("UPL-08")
    before, most = memory_bytes(), 0
    async with (
        sqlite_site.client(await sqlite_site.account("teacher", "tia", "demo")) as client,
        asyncio.timeout(case["expect"]["seconds_at_most"]),
    ):
        upload = asyncio.create_task(client.post(UPLOAD, files=[form(case["input"]["file"])]))
        while not upload.done():
            began = time.monotonic()
            assert (await client.get("/health")).status_code == 200
            assert time.monotonic() - began < 1.0
            most = max(most, memory_bytes())
            await asyncio.sleep(0.005)
    assert upload.result().status_code in case["expect"]["status_any_of"]
    assert (most - before) / (1 << 20) < case["expect"]["rss_growth_mib_less_than"]
    assert list((tmp_path / "uploads").iterdir()) == []


def memory_bytes() -> int:
    """Resident memory of this process and of those that it has started."""
    this = psutil.Process()
    total: int = this.memory_info().rss
    for child in this.children():
        with contextlib.suppress(psutil.Error):  # it has ended
            total += child.memory_info().rss
    return total


def all_files(*roots: Path) -> set[Path]:
    return {
        Path(folder) / name
        for root in roots
        for folder, _, files in os.walk(root)
        for name in files
    }


def escaped(folders: list[Path]) -> list[Path]:
    """Where a file lies that must lie nowhere."""
    return [folder for folder in folders if (folder / "escaped_marker.txt").exists()]


async def test_a_name_is_never_a_path(sqlite_site: Site, tmp_path: Path) -> None:
    """SEC-03."""
    case = load_case("SEC-03")["input"]
    outside = [tmp_path.parent, Path("/tmp"), ROOT, ROOT.parent]
    assert not escaped(outside)
    async with sqlite_site.client(await sqlite_site.account("teacher", "tia", "demo")) as client:
        other = await client.post(UPLOAD, files=[form("lecture3_gbk.txt")])
        before = all_files(tmp_path)
        reply = await client.post(
            UPLOAD, files=[("file", (case["filename"], case["content_utf8"].encode()))]
        )
        assert reply.status_code == 201, reply.text
        material: dict[str, Any] = reply.json()
        assert material["name"] == "escaped_marker.txt"
        new = all_files(tmp_path) - before
        kept = [path for path in new if path.parent.parent == tmp_path / "materials"]
        assert len(kept) == 1
        assert set(kept[0].name) <= set("0123456789abcdef")
        assert all(path in kept or path.name.startswith("lectern.db") for path in new)
        assert not escaped(outside)

        assert (await client.delete(f"/api/materials/{material['id']}")).status_code == 204
        assert {path for path in before if "lectern.db" not in path.name} <= all_files(tmp_path)
        assert not kept[0].exists()
        assert (await client.get(f"/api/materials/{other.json()['id']}")).status_code == 200


async def test_no_address_is_ever_fetched(sqlite_site: Site) -> None:
    """SEC-05: the uploads among its requests; the others are the service's own case."""
    hits = 0

    async def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hits
        hits += 1
        writer.close()

    listener = await asyncio.start_server(count, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    case = load_case("SEC-05")
    uploads = [one for one in case["input"]["requests"] if one["path"] == "UPLOAD"]
    assert len(uploads) == 2
    async with (
        listener,
        sqlite_site.client(await sqlite_site.account("teacher", "tia", "demo")) as client,
    ):
        for request in uploads:
            url = request["json"]["url"].replace("@listener", str(port))
            reply = await client.post(UPLOAD, json={"url": url})
            assert reply.status_code in case["expect"]["status_any_of"]
            reply = await client.post(UPLOAD, data={"url": url})
            assert reply.status_code in case["expect"]["status_any_of"]
            reply = await client.post(UPLOAD, files={"file": (None, url)})
            assert reply.status_code in case["expect"]["status_any_of"]
        assert hits == case["expect"]["hits"]
        assert (await names(client)) == {"staff.en.md": "ready"}
