"""Materials over HTTP: what teachers do with them, and what students see of that."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import time
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from server.app.materials.document import ParseLimits
from server.app.materials.parser import MaterialSource, no_progress, parser_for
from server.app.materials.parser_process import ParsedMaterial, ParserProcess
from server.app.passages import split
from server.store.analysis import index_words
from server.store.courses import Courses
from tests.server.app.site import Site, open_site
from tests.support.cases import CASES

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

UPLOAD = "/api/courses/demo/materials"
LAB = b"# Lab 3: Paging\n\nHand in a zebra report by Friday.\n"


@dataclass
class Room:
    """A site with a teacher of its course, and a guest, who sees of it what students see."""

    site: Site
    teacher: httpx.AsyncClient
    student: httpx.AsyncClient

    async def upload(self, name: str, data: bytes, **fields: str) -> dict[str, Any]:
        reply = await self.teacher.post(UPLOAD, files={"file": (name, data)}, data=fields)
        assert reply.status_code == 201, reply.text
        found: dict[str, Any] = reply.json()
        return found

    async def watch(self, job: dict[str, Any]) -> dict[str, Any]:
        """The import when it is over."""
        async with asyncio.timeout(30):
            while job["done"] < job["total"]:
                await asyncio.sleep(0.01)
                job = (await self.teacher.get(f"/api/imports/{job['import']}")).json()
        return job

    async def listed(self, client: httpx.AsyncClient | None = None) -> list[str]:
        found = (await (client or self.teacher).get(UPLOAD)).json()["materials"]
        return [material["name"] for material in found]

    async def sources(self, question: str) -> list[str]:
        """Titles of what an open course's guest is answered from."""
        events = await self.site.answer(question, course="demo")
        return [passage["title"] for passage in events["retrieval"][0]["passages"]]


@pytest.fixture
async def room(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Room]:
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(open_site(tmp_path, max_upload_bytes=300_000))
        teacher = await stack.enter_async_context(
            site.client(await site.account("teacher", "tia", "demo"))
        )
        student = await stack.enter_async_context(site.client())
        yield Room(site, teacher, student)


def zipped(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return target.getvalue()


async def test_a_file_is_named_read_and_found(room: Room) -> None:
    material = await room.upload("week05_lab3.md", LAB)
    assert (material["kind"], material["week"]) == ("lab", 5)
    assert (material["title"], material["state"]) == ("Lab 3: Paging", "ready")
    assert (material["num_passages"], material["edited"]) == (1, [])
    assert await room.sources("zebra report") == ["Lab 3: Paging"]
    whole = (await room.student.get(f"/api/materials/{material['id']}")).json()
    assert whole["text"] == LAB.decode()
    assert whole["locator"] == "week05_lab3.md"
    assert [place["heading"] for place in whole["places"]] == ["Lab 3: Paging"]
    assert "size_bytes" not in whole


async def test_the_same_bytes_come_back_as_what_they_are(room: Room) -> None:
    first = await room.upload("a.md", LAB)
    again = await room.teacher.post(UPLOAD, files={"file": ("b.md", LAB)})
    assert again.status_code == 200
    assert (again.json()["id"], again.json()["duplicate"]) == (first["id"], True)
    assert await room.listed() == ["a.md", "staff.en.md"]


async def test_the_same_bytes_twice_at_once_are_one(room: Room) -> None:
    replies = await asyncio.gather(
        *(room.teacher.post(UPLOAD, files={"file": (f"{n}.md", LAB)}) for n in range(4))
    )
    assert sorted(reply.status_code for reply in replies) == [200, 200, 200, 201]
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert len(await room.listed()) == 2


async def test_a_form_says_what_its_files_are(room: Room) -> None:
    material = await room.upload(
        "x.md", LAB, week="7", kind="exam", is_hidden="true", visible_from="2026-10-01"
    )
    assert (material["week"], material["kind"], material["is_hidden"]) == (7, "exam", True)
    assert material["visible_from"].startswith("2026-10-01T00:00:00")
    assert material["edited"] == ["kind", "week"]


async def test_a_wrong_form_is_told_by_its_field(room: Room) -> None:
    wrong = {"week": ("0", "soon"), "kind": ("song",), "visible_from": ("tomorrow", "2026-13-01")}
    for param, values in wrong.items():
        for value in values:
            reply = await room.teacher.post(
                UPLOAD, files={"file": ("a.md", LAB)}, data={param: value}
            )
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), value
    assert await room.listed() == ["staff.en.md"]


async def test_a_charset_that_is_none_is_told(room: Room) -> None:
    body = b'--XX\r\nContent-Disposition: form-data; name="week"\r\n\n3\r\n--XX--\r\n'
    for media_type in ("multipart/form-data", "Multipart/Form-Data"):
        kind = f"{media_type}; boundary=XX; charset=undefined"
        reply = await room.teacher.post(UPLOAD, content=body, headers={"Content-Type": kind})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "file")


async def test_a_file_that_failed_may_come_again_under_its_right_name(room: Room) -> None:
    wrong = await room.teacher.post(UPLOAD, files={"file": ("lab2.pdf", LAB)})
    assert wrong.json()["error"]["code"] == "not_this_format"
    reply = await room.teacher.post(
        UPLOAD, files={"file": ("lab3.md", LAB)}, data={"is_hidden": "true"}
    )
    assert reply.status_code in (200, 201), reply.text
    found = reply.json()
    assert (found["name"], found["format"], found["state"]) == ("lab3.md", "markdown", "ready")
    assert (found["title"], found["is_hidden"]) == ("Lab 3: Paging", True)
    assert await room.listed() == ["lab3.md", "staff.en.md"]


async def test_the_same_bytes_twice_in_one_upload_are_told_once(room: Room) -> None:
    both = [("file", (name, LAB)) for name in ("a.md", "b.md")]
    job = await room.watch((await room.teacher.post(UPLOAD, files=both)).json())
    assert [(file["name"], file["state"]) for file in job["files"]] == [
        ("a.md", "ready"),
        ("a.md", "duplicate"),
    ]


async def test_a_flag_that_is_neither_yes_nor_no_is_refused(room: Room) -> None:
    reply = await room.teacher.post(
        UPLOAD, files={"file": ("a.md", LAB)}, data={"is_hidden": "maybe"}
    )
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "is_hidden")


async def test_a_title_has_no_controls(room: Room) -> None:
    material = await room.upload("a.md", LAB)
    one = f"/api/materials/{material['id']}"
    changed = await room.teacher.patch(one, json={"title": "La\u202eb\x07 3\n(new)"})
    assert changed.json()["title"] == "Lab 3 (new)"


async def test_a_zip_is_its_files(room: Room) -> None:
    data = zipped(
        {
            "week02/lab1.md": b"# One\n\nfirst words",
            "../../evil.txt": b"outside words",
            "photo.png": b"\x89PNG",
            "__MACOSX/x.md": b"junk",
            "broken.pdf": b"no pdf",
        }
    )
    reply = await room.teacher.post(UPLOAD, files={"file": ("term.zip", data)})
    assert reply.status_code == 202
    job = await room.watch(reply.json())
    assert {file["name"]: file["state"] for file in job["files"]} == {
        "week02/lab1.md": "ready",
        "evil.txt": "ready",
        "photo.png": "failed",
        "broken.pdf": "failed",
    }
    codes = {file["name"]: file["error"]["code"] for file in job["files"] if file["error"]}
    assert codes == {"photo.png": "unsupported", "broken.pdf": "not_this_format"}
    (lab,) = [m for m in (await room.teacher.get(UPLOAD)).json()["materials"] if m["week"]]
    assert (lab["name"], lab["kind"], lab["week"]) == ("week02/lab1.md", "lab", 2)


async def test_a_zip_that_is_none_is_told(room: Room) -> None:
    reply = await room.teacher.post(UPLOAD, files={"file": ("term.zip", b"not a zip")})
    (file,) = reply.json()["files"]
    assert (reply.status_code, file["error"]["code"]) == (202, "not_this_format")


async def test_who_does_not_wait_watches(room: Room) -> None:
    reply = await room.teacher.post(
        UPLOAD, files={"file": ("a.md", LAB)}, headers={"Prefer": "respond-async"}
    )
    assert reply.status_code == 202
    assert (await room.student.get(f"/api/imports/{reply.json()['import']}")).status_code == 403
    job = await room.watch(reply.json())
    assert job["files"][0]["state"] == "ready"
    assert (await room.teacher.get("/api/imports/nothing")).status_code == 404


async def test_what_is_hidden_early_or_failed_is_the_teachers_alone(room: Room) -> None:
    material = await room.upload("secret.md", LAB)
    path = f"/api/materials/{material['id']}"
    future = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    past = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    steps: list[tuple[dict[str, object], bool]] = [
        ({"is_hidden": True}, False),
        ({"is_hidden": False, "visible_from": future}, False),
        ({"visible_from": past}, True),
        ({"visible_from": None, "is_hidden": True}, False),
    ]
    for change, is_visible in steps:
        changed = (await room.teacher.patch(path, json=change)).json()
        assert changed["is_visible"] is is_visible
        assert ("secret.md" in await room.listed(room.student)) is is_visible
        assert (await room.student.get(path)).status_code == (200 if is_visible else 404)
        assert ("Lab 3: Paging" in await room.sources("zebra report")) is is_visible
        assert "secret.md" in await room.listed()
    await room.teacher.post(UPLOAD, files={"file": ("bad.pdf", b"no pdf")})
    assert "bad.pdf" in await room.listed()
    assert "bad.pdf" not in await room.listed(room.student)


async def test_fields_that_are_set_by_hand_are_kept(room: Room) -> None:
    material = await room.upload("lab3.md", LAB)
    path = f"/api/materials/{material['id']}"
    change = {"title": "  Paging\n lab ", "kind": "admin", "week": 4}
    changed = (await room.teacher.patch(path, json=change)).json()
    assert (changed["title"], changed["kind"], changed["week"]) == ("Paging lab", "admin", 4)
    assert changed["edited"] == ["kind", "title", "week"]
    replaced = await room.teacher.put(
        f"{path}/file", files={"file": ("exam_week9.md", b"# Other\n\nA giraffe report.")}
    )
    assert replaced.status_code == 200, replaced.text
    now = replaced.json()
    assert (now["id"], now["title"], now["kind"], now["week"]) == (
        material["id"],
        "Paging lab",
        "admin",
        4,
    )
    assert now["name"] == "exam_week9.md"
    assert await room.sources("giraffe report") == ["Paging lab"]
    assert len(await kept_files(room)) == 2


async def kept_files(room: Room) -> list[Path]:
    """The bytes of the course's materials on disk."""
    course = await Courses(room.site.app.database).get("demo")
    assert course is not None
    return list(room.site.app.library.files.path(course.id, "x").parent.iterdir())


async def test_a_wrong_change_is_told_by_its_field(room: Room) -> None:
    material = await room.upload("a.md", LAB)
    path = f"/api/materials/{material['id']}"
    wrong: dict[str, tuple[object, ...]] = {
        "title": (" ", "x" * 301, None),
        "kind": ("song",),
        "week": (61, 0, "4"),
        "visible_from": ("2026-13-01", 7),
        "encoding": ("klingon",),
        "is_hidden": ("yes",),
    }
    for param, values in wrong.items():
        for value in values:
            reply = await room.teacher.patch(path, json={"title": "New", param: value})
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), value
    assert (await room.teacher.patch(path, json={"colour": "red"})).status_code == 400
    assert (await room.teacher.get(path)).json()["title"] == "Lab 3: Paging"


async def test_a_replacement_that_cannot_be_read_changes_nothing(room: Room) -> None:
    material = await room.upload("a.md", LAB)
    path = f"/api/materials/{material['id']}"
    before = (await room.teacher.get(path)).json(), await kept_files(room)
    for name, data in (("b.pdf", b"no pdf"), ("b.docx", b"PK\x03\x04 no zip"), ("b.xyz", b"x")):
        reply = await room.teacher.put(f"{path}/file", files={"file": (name, data)})
        assert reply.status_code == 422
        assert ((await room.teacher.get(path)).json(), await kept_files(room)) == before
    other = await room.upload("other.md", b"# Other\n\nwords")
    reply = await room.teacher.put(f"{path}/file", files={"file": ("c.md", b"# Other\n\nwords")})
    assert reply.status_code == 409
    assert "other.md" in reply.json()["error"]["message"]
    assert (await room.teacher.get(f"/api/materials/{other['id']}")).status_code == 200
    assert await room.sources("zebra report") == ["Lab 3: Paging"]


async def test_an_encoding_of_choice(room: Room) -> None:
    data = "第三讲：分页与块表。\n块表负责逻辑块到物理块的映射。".encode("gb18030")
    material = await room.upload("notes.txt", data)
    path = f"/api/materials/{material['id']}"
    preview = (await room.teacher.get(f"{path}/preview")).json()
    assert preview["encoding"] == "gb18030"
    assert "块表" in preview["text"]
    candidates = {one["encoding"]: one["text"] for one in preview["candidates"]}
    assert "块表" in candidates["gb18030"]
    assert "块表" not in candidates["cp1252"]
    assert (await room.teacher.get(f"{path}/preview?encoding=utf-8")).status_code == 422
    changed = (await room.teacher.patch(path, json={"encoding": "cp1252"})).json()
    assert (changed["encoding"], changed["edited"]) == ("cp1252", ["encoding"])
    assert "块表" not in (await room.teacher.get(path)).json()["text"]
    assert (await room.teacher.patch(path, json={"encoding": "utf-8"})).status_code == 422
    assert (await room.teacher.get(path)).json()["encoding"] == "cp1252"
    changed = (await room.teacher.patch(path, json={"encoding": None})).json()
    assert (changed["encoding"], changed["edited"]) == ("gb18030", [])
    assert "块表" in (await room.teacher.get(path)).json()["text"]


async def test_a_deleted_file_is_gone_but_stored_answers_keep_it(room: Room) -> None:
    material = await room.upload("a.md", LAB)
    events = await room.site.answer("zebra report", course="demo")
    path = f"/api/materials/{material['id']}"
    assert (await room.teacher.delete(path)).status_code == 204
    assert (await room.teacher.get(path)).status_code == 404
    assert (await room.teacher.delete(path)).status_code == 404
    assert await room.sources("zebra report") != ["Lab 3: Paging"]
    assert len(await kept_files(room)) == 1
    conversation = events["accepted"][0]["conversation"]
    answer = (await room.site.conversation(conversation))["messages"][1]
    assert "zebra" in answer["passages"][0]["text"]


async def test_what_failed_is_tried_again(room: Room) -> None:
    reply = await room.teacher.post(UPLOAD, files={"file": ("a.pdf", b"no pdf")})
    assert reply.status_code == 422
    (failed,) = [m for m in (await room.teacher.get(UPLOAD)).json()["materials"] if m["error"]]
    assert failed["error"]["code"] == "not_this_format"
    assert "a.pdf" in failed["error"]["message_zh"]
    path = f"/api/materials/{failed['id']}"
    assert (await room.teacher.post(f"{path}/retry")).status_code == 422
    good = await room.teacher.put(f"{path}/file", files={"file": ("a.md", LAB)})
    assert (good.status_code, good.json()["state"]) == (200, "ready")
    assert (await room.teacher.post(f"{path}/retry")).status_code == 409


async def test_too_much_is_refused_with_or_without_its_length(room: Room) -> None:
    data = b"x" * 400_000
    reply = await room.teacher.post(UPLOAD, files={"file": ("a.txt", data)})
    assert reply.status_code == 413
    assert "0.286102 MiB" in reply.json()["error"]["message"]

    async def pieces() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        for _ in range(4):
            yield data[:100_000]
        yield b"\r\n--b--\r\n"

    reply = await room.teacher.post(
        UPLOAD, content=pieces(), headers={"Content-Type": "multipart/form-data; boundary=b"}
    )
    assert reply.status_code == 413
    assert await room.listed() == ["staff.en.md"]
    uploads = room.site.app.library.files._uploads
    assert list(uploads.iterdir()) == []


async def test_what_is_no_form_with_files_is_told(room: Room) -> None:
    form = "multipart/form-data"
    for content_type, body, status in (
        ("application/json", b'{"url": "http://x"}', 415),
        ("text/plain", b"hello", 415),
        (f"{form}; boundary=b", b"no form", 400),
        (form, b"no boundary", 400),
        (f"{form}; boundary=b", b"--b--\r\n", 400),
    ):
        reply = await room.teacher.post(
            UPLOAD, content=body, headers={"Content-Type": content_type}
        )
        assert (reply.status_code, reply.json()["error"]["param"]) == (status, "file"), body


async def test_a_full_disk_is_told_and_leaves_nothing(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        reply = await room.teacher.post(UPLOAD, files={"file": ("a.md", LAB)})
    assert reply.status_code == 507
    assert "磁盘" in reply.json()["error"]["message_zh"]
    assert await room.listed() == ["staff.en.md"]
    assert len(await kept_files(room)) == 1
    assert list(room.site.app.library.files._uploads.iterdir()) == []
    await room.upload("a.md", LAB)


async def test_a_material_that_is_being_read_can_be_deleted(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    parse = ParserProcess.parse

    async def slow(self: ParserProcess, *args: Any, **kwargs: Any) -> ParsedMaterial:
        began.set()
        await go_on.wait()
        return await parse(self, *args, **kwargs)

    monkeypatch.setattr(ParserProcess, "parse", slow)
    reply = await room.teacher.post(
        UPLOAD, files={"file": ("a.md", LAB)}, headers={"Prefer": "respond-async"}
    )
    await began.wait()
    found = (await room.teacher.get(UPLOAD)).json()["materials"]
    (material,) = [m for m in found if m["state"] == "parsing"]
    path = f"/api/materials/{material['id']}"
    assert (await room.student.get(path)).status_code == 404
    busy = await room.teacher.put(f"{path}/file", files={"file": ("b.md", b"# B\n\nb")})
    assert busy.status_code == 409
    assert (await room.teacher.delete(path)).status_code == 204
    job = await room.watch(reply.json())
    assert job["files"][0]["state"] == "failed"
    go_on.set()
    assert await room.listed() == ["staff.en.md"]
    assert len(await kept_files(room)) == 1


async def test_a_replacement_is_all_or_nothing_for_a_search(room: Room) -> None:
    """Searches during a replacement find the old text or the new one, and never neither."""
    material = await room.upload("a.md", LAB)
    path = f"/api/materials/{material['id']}/file"
    seen: set[str] = set()

    async def search() -> None:
        events = await room.site.answer("zebra report", course="demo")
        passages = events["retrieval"][0]["passages"]
        texts = [p["text"] for p in passages if p["material"] == material["id"]]
        assert len(texts) == 1
        seen.update(texts)

    put = asyncio.create_task(
        room.teacher.put(path, files={"file": ("a.md", LAB.replace(b"Friday", b"Monday"))})
    )
    while not put.done():
        await search()
    assert put.result().status_code == 200
    await search()
    assert any("Friday" in text for text in seen)
    assert any("Monday" in text for text in seen)


async def test_a_student_may_change_nothing(room: Room) -> None:
    material = await room.upload("a.md", LAB)
    path = f"/api/materials/{material['id']}"
    async with room.site.client(await room.site.account("student", "sam", "demo")) as student:
        assert (await student.get(path)).status_code == 200
        replies = [
            await student.post(UPLOAD, files={"file": ("b.md", b"x")}),
            await student.patch(path, json={"title": "mine"}),
            await student.delete(path),
            await student.put(f"{path}/file", files={"file": ("b.md", b"x")}),
            await student.post(f"{path}/retry"),
            await student.get(f"{path}/preview"),
            await student.get(f"{path}/passages"),
        ]
    assert [reply.status_code for reply in replies] == [403] * 7
    assert (await room.teacher.get(path)).json()["title"] == "Lab 3: Paging"


async def test_passages_are_shown_with_their_places(room: Room) -> None:
    material = await room.upload("rows.csv", b"name,room\nAda,B204\nBob,C1\n")
    passages = (await room.teacher.get(f"/api/materials/{material['id']}/passages")).json()
    assert [(p["position"], p["place"]["row"]) for p in passages["passages"]] == [(0, 2)]
    assert passages["passages"][0]["num_tokens"] > 0


async def test_real_bytes_pass_through_a_whole_process(room: Room) -> None:
    """A file in an encoding of its own, through the form, the parser's process and the index."""
    data = (CASES / "lecture3_gbk.txt").read_bytes()
    material = await room.upload("第三讲.txt", data)
    assert (material["name"], material["encoding"]) == ("第三讲.txt", "gb18030")
    assert (await room.sources("缺页中断"))[0] == material["title"]


async def test_answers_do_not_wait_for_what_is_read(room: Room) -> None:
    """Everything slow happens in the parser's process: the loop's own thread never works long at a
    stretch, as its processor time between two turns of another task shows, beside what reading
    the same text takes on this machine."""
    sentence = "A scheduler divides a budget of tokens between requests that wait. " * 4
    text = "\n\n".join(f"## Section {n}\n\n{n} {sentence}" for n in range(900))
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - began)

    await room.upload("first.md", LAB)  # what is loaded once is loaded now
    gc.collect()
    gc.freeze()  # as the server does when it is ready
    try:
        watching = asyncio.create_task(watch())
        material = await room.upload("long.md", f"# Long\n\n{text}".encode())
        watching.cancel()
    finally:
        gc.unfreeze()
    assert material["num_passages"] > 300
    began = time.thread_time()
    limits = ParseLimits()
    source = MaterialSource("long.md", f"# Long\n\n{text}".encode(), None)
    document = parser_for("long.md", b"").parse(source, limits, no_progress)
    for passage in split(
        document, limits.passages, lambda texts: [len(text) // 4 for text in texts]
    ):
        index_words(passage.text)
    assert longest < (time.thread_time() - began) / 4
