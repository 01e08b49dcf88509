"""Files that would harm their reader are refused with the reason, soon and in little memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pptx
import pytest

from server.app.materials.document import ParseLimits
from server.app.materials.worker_messages import Parse
from tests.server.app.materials.made_files import (
    LAUGHS,
    docx_file,
    many_pages_pdf,
    pdf,
    pptx_file,
    with_members,
    word_paragraph,
    word_xml,
    zip_of,
)
from tests.server.app.materials.workers import GUIDE, parser, refusal, run_python

CASES = Path(__file__).parents[3] / "cases"
MAX_REFUSAL_S = 5.0

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
_LOCKED = "EncryptedPackage".encode("utf-16-le")
_SLIDE = "ppt/slides/slide1.xml"


def case(name: str) -> bytes:
    return (CASES / name).read_bytes()


def hostile_files() -> dict[str, tuple[str, bytes, str]]:
    """By what is wrong: the file's name, its bytes, and the code that tells it."""
    laughs = word_xml(word_paragraph("&i;"), dtd=LAUGHS)
    deep = word_xml("<w:tbl><w:tr><w:tc>" * 5000)
    slides = LAUGHS.encode() + b"<p:sld>&i;</p:sld>"
    return {
        "locked": ("a.pdf", case("locked_needs_password.pdf"), "password_required"),
        "scanned": ("a.pdf", case("scanned_image_only.pdf"), "no_text"),
        "inflates": ("a.docx", case("inflates_to_192MiB.docx"), "inflates_too_much"),
        "text called pdf": ("a.pdf", b"Just words.", "not_this_format"),
        "broken pdf": ("a.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 40, "not_this_format"),
        "pdf called text": ("a.txt", pdf([[(12, 72, 700, "x")]]), "not_this_format"),
        "too many pages": ("a.pdf", many_pages_pdf(50_000), "too_many_pages"),
        "old Word": ("a.docx", _OLE, "not_this_format"),
        "locked Word": ("a.docx", _OLE + _LOCKED, "password_required"),
        "zip that is cut": ("a.docx", docx_file()[:2000], "not_this_format"),
        "other zip": ("a.docx", with_members(pptx_file(), {}), "not_this_format"),
        "empty zip": ("a.pptx", zip_of({}), "not_this_format"),
        "laughs in Word": (
            "a.docx",
            with_members(docx_file(), {"word/document.xml": laughs}),
            "not_this_format",
        ),
        "depth in Word": (
            "a.docx",
            with_members(docx_file(), {"word/document.xml": deep}),
            "not_this_format",
        ),
        "laughs in slides": (
            "a.pptx",
            with_members(one_slide(), {_SLIDE: slides}),
            "not_this_format",
        ),
        "lying sizes": ("a.docx", lying_zip(), "not_this_format"),
        "empty document": ("a.docx", docx_file(), "no_text"),
        "empty page": ("a.html", b"<html><body><script>x</script></body></html>", "no_text"),
        "10 MB in one line": ("a.md", b"word " * 2_000_000, "too_big"),
        "no text": ("a.txt", bytes(range(256)) * 40 + b"\xff\xff", "undecodable"),
        "unknown": ("a.exe", b"MZ", "unsupported"),
    }


def one_slide() -> bytes:
    presentation = pptx.Presentation()
    presentation.slides.add_slide(presentation.slide_layouts[0])
    return pptx_file(presentation)


def lying_zip() -> bytes:
    """A Word file whose main part declares 100 bytes and has 100 million."""
    real = word_xml(word_paragraph("a" * 100_000_000))
    data = with_members(docx_file(), {"word/document.xml": real})
    return data.replace(len(real).to_bytes(4, "little"), (100).to_bytes(4, "little"))


@pytest.mark.anyio
@pytest.mark.one_loop
async def test_hostile_files_are_refused_with_their_reason_and_the_next_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "file"
    async with parser() as process:
        for what, (name, data, code) in hostile_files().items():
            path.write_bytes(data)
            began = time.perf_counter()
            refused = await refusal(process, path, name)
            assert refused.code == code, what
            assert name in refused.message, what
            assert time.perf_counter() - began < MAX_REFUSAL_S, what
            assert os.listdir(tmp_path) == ["file"], what
        path.write_bytes(GUIDE)
        assert (await process.parse(path, "guide.md")).title == "Guide"


@pytest.mark.parametrize("case", ["inflates", "laughs in Word", "lying sizes", "10 MB in one line"])
def test_refusing_takes_little_memory(case: str, tmp_path: Path) -> None:
    """The process's greatest resident size, measured by the system."""
    name, data, code = hostile_files()[case]
    path = tmp_path / "file"
    path.write_bytes(data)
    job = msgspec.json.encode(Parse(str(path), name, None, ParseLimits(), 0))
    # What a process starts with counts as well, so that a small one has to start it.
    starter = (
        "import os, subprocess, sys\n"
        f"job = {job!r}.replace(b'\"parent\":0', b'\"parent\":%d' % os.getpid())\n"
        "worker = subprocess.Popen([sys.executable, '-P', '-m', 'server.app.materials.worker'], "
        "stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "worker.stdin.write(job + b'\\n')\n"
        "worker.stdin.flush()\n"
        "answer = worker.stdout.read()\n"
        "_, status, usage = os.wait4(worker.pid, 0)\n"
        "print(status, usage.ru_maxrss, answer)"
    )
    status, max_rss_kib, answer = run_python(starter).split(" ", 2)
    assert code in answer
    assert status == "0"
    assert int(max_rss_kib) < 128 * 1024
