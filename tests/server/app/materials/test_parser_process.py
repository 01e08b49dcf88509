"""Whatever a file does to its reader, the server gets a reason, and goes on to read the next."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from server.app.materials.child_process import ChildProcess
from server.app.materials.document import ParseLimits
from server.app.materials.errors import MaterialError
from server.app.materials.markdown import markdown_document
from server.app.materials.parser_process import ParserClosedError, ParserProcess
from server.app.passages import estimate, split
from server.store.analysis import title_words
from server.store.passage_items import body_words
from tests.server.app.materials.made_files import paragraph_lines, pdf, zip_of
from tests.server.app.materials.workers import GUIDE, REPOSITORY, parser, refusal, run_python

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

CASES = Path(__file__).parents[3] / "cases"
SAMPLE = REPOSITORY / "server" / "app" / "sample_course"


def misbehaving(code: str) -> tuple[str, ...]:
    """Arguments of Python for a worker that takes its job and then runs `code`."""
    return ("-P", "-c", f"import os, sys\nsys.stdin.buffer.readline()\n{code}")


async def test_a_file_becomes_passages_with_sizes_words_and_places(tmp_path: Path) -> None:
    path = tmp_path / "b5c7"
    path.write_bytes(pdf([paragraph_lines(["Lab 3 is due", "on Friday."])] * 2))
    seen: list[tuple[int, int]] = []
    async with parser() as process:
        parsed = await process.parse(
            path, "lab3.pdf", on_progress=lambda done, total: seen.append((done, total))
        )
    (passage,) = parsed.passages
    (words,) = parsed.words
    assert parsed.title == "lab3"
    assert (parsed.format, parsed.encoding, parsed.num_pages) == ("pdf", None, 2)
    assert passage.num_tokens == len(passage.text.split())
    assert passage.place.fields() == {"page": 1, "to_page": 2}
    assert (passage.locator, passage.language) == ("pp. 1–2", "en")
    assert words.title == title_words("lab3", "lab3.pdf")
    assert words.body == " ".join(body_words(passage.text))
    assert seen == [(2, 2)]


async def test_the_whole_sample_course_is_the_same_as_read_in_one_process() -> None:
    async def count(texts: Sequence[str]) -> list[int]:
        return estimate(texts)

    process = ParserProcess(ParseLimits(), count)
    for path in (SAMPLE / "lab4.zh.md", SAMPLE / "lecture2.en.md"):
        parsed = await process.parse(path, path.name)
        document = markdown_document(path.read_text("utf-8"), path.stem)
        assert parsed.passages == tuple(split(document))
        assert parsed.text == document.text
    await process.close()


_PROGRESS = '{"type": "progress", "done": 1, "total": 2}'
_LIMITED = (
    "from server.app.materials.worker_limits import limit_process\n"
    "limit_process(memory_mb=256, cpu_s=1, parent=os.getppid())\n"
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (_LIMITED + "while True: pass", "too_slow"),
        ("import ctypes; ctypes.string_at(0)", "parser_crashed"),
        ("raise RuntimeError('words of a student')", "parser_crashed"),
        ("os.kill(os.getpid(), 9)", "too_big"),
        ("print('hello')", "parser_crashed"),
        ('print(\'{"type": "refused", "code": "no such", "facts": {}}\')', "parser_crashed"),
        ('print(\'{"type": "listed"}\')', "parser_crashed"),
        ("os.close(1)", "parser_crashed"),
        ("sys.stdout.write('{\"type\"')", "parser_crashed"),
        ("sys.stdout.write('x' * 20_000_000)", "too_big"),
        (f"while True: print({_PROGRESS!r} + ' ' * 10**6)", "too_big"),
        ('print(\'{"type": "measure", "texts": ["a"]}\', flush=True)', "parser_crashed"),
    ],
    ids=[
        *("spins", "segfaults", "raises", "is killed", "says garbage", "unknown reason"),
        *("wrong answer", "closes its output", "half a message", "one long line", "babbles"),
        "dies while texts are measured",
    ],
)
async def test_a_process_that_goes_wrong_is_a_reason(
    code: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(GUIDE)
    async with parser(worker=misbehaving(code)) as process:
        refused = await refusal(process, path, "guide.md")
    assert refused.code == expected


async def test_memory_that_runs_out_in_a_parser_is_told(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(GUIDE)
    code = (
        "from server.app.materials import worker\n"
        "def swell(job, channel):\n"
        "    kept = []\n"
        "    while True: kept.append(bytearray(10**7))\n"
        "worker._do = swell\n"
        "worker.main()"
    )
    async with parser(worker=("-P", "-c", code), limits=ParseLimits(memory_mb=256)) as process:
        refused = await refusal(process, path, "guide.md")
    assert refused.code == "too_big"


async def test_what_a_file_says_is_not_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(GUIDE)
    code = (
        "from server.app.materials import worker\n"
        "def fail(job, channel): raise RuntimeError('words of a student')\n"
        "worker._do = fail\n"
        "worker.main()"
    )
    async with parser(worker=("-P", "-c", code)) as process:
        await refusal(process, path, "guide.md")
    assert "RuntimeError at" in caplog.text
    assert "words of a student" not in caplog.text


async def test_a_process_that_never_answers_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(GUIDE)
    told = tmp_path / "pid"
    code = f"open({str(told)!r}, 'w').write(str(os.getpid()))\nsys.stdin.buffer.read()"
    async with parser(worker=misbehaving(code), wall_s=3.0) as process:
        refused = await refusal(process, path, "guide.md")
    assert refused.code == "too_slow"
    assert not is_alive(int(told.read_text()))


async def test_cancelling_ends_the_process_and_what_it_started(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(GUIDE)
    code = (
        "import subprocess\n"
        "inner = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], "
        "stdin=subprocess.PIPE)\n"
        'print(\'{"type": "progress", "done": %d, "total": %d}\' % (os.getpid(), inner.pid), '
        "flush=True)\n"
        "sys.stdin.buffer.read()"
    )
    pids: list[int] = []
    async with parser(worker=misbehaving(code)) as process, anyio.create_task_group() as tasks:

        def stop(pid: int, inner: int) -> None:
            pids.extend((pid, inner))
            tasks.cancel_scope.cancel()

        async def read() -> None:
            await process.parse(path, "guide.md", on_progress=stop)

        tasks.start_soon(read)
    assert len(pids) == 2
    assert not is_alive(pids[0])
    wait_for_end(pids[1])


async def test_closing_ends_what_runs_and_starts_nothing_new(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(GUIDE)
    code = f"print({_PROGRESS!r}, flush=True)\nsys.stdin.buffer.read()"
    async with parser(worker=misbehaving(code)) as process:
        begun = anyio.Event()

        async def read() -> None:
            with pytest.raises(ParserClosedError):
                await process.parse(path, "guide.md", on_progress=lambda *_: begun.set())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await begun.wait()
            await process.close()
        with pytest.raises(ParserClosedError):
            await process.parse(path, "guide.md")


async def test_closing_ends_what_is_just_being_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read to its end, which may take minutes."""
    start, started, closed = ChildProcess.start, asyncio.Event(), asyncio.Event()

    async def start_slowly(arguments: Sequence[str]) -> ChildProcess:
        child = await start(arguments)
        started.set()
        await closed.wait()
        return child

    monkeypatch.setattr(ChildProcess, "start", start_slowly)
    path = tmp_path / "b5c7"
    path.write_bytes(GUIDE)
    async with parser(worker=misbehaving("import time\ntime.sleep(60)")) as process:
        reading = asyncio.create_task(process.parse(path, "lab.md"))
        await started.wait()
        await process.close()
        closed.set()
        with pytest.raises(ParserClosedError):
            async with asyncio.timeout(30):
                await reading


async def test_a_failing_tokenizer_is_no_fault_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(GUIDE)

    async def fail(texts: Sequence[str]) -> list[int]:
        raise LookupError("the engine is gone")

    process = ParserProcess(ParseLimits(), fail)
    with pytest.raises(LookupError):
        await process.parse(path, "guide.md")
    await process.close()


async def test_one_file_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(GUIDE)
    running = 0
    most = 0

    async def count(texts: Sequence[str]) -> list[int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.lowlevel.checkpoint()
        running -= 1
        return estimate(texts)

    process = ParserProcess(ParseLimits(), count, max_workers=1)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(process.parse, path, "guide.md")
    await process.close()
    assert most == 1


def test_the_process_dies_with_its_server(tmp_path: Path) -> None:
    """A server that is killed leaves no reader behind."""
    (tmp_path / "guide.md").write_bytes(GUIDE)
    code = (
        "import asyncio, os\nfrom pathlib import Path\n"
        "from server.app.materials.document import ParseLimits\n"
        "from server.app.materials.parser_process import ParserProcess\n"
        "async def count(texts): return [1]\n"
        "worker = ('-P', '-c', '''import os, signal, sys\n"
        "from server.app.materials.worker_limits import limit_process\n"
        "limit_process(memory_mb=256, cpu_s=9, parent=os.getppid())\n"
        'print(\'{"type": "progress", "done": %d, "total": 1}\' % os.getpid(), flush=True)\n'
        "signal.pause()''')\n"
        "asyncio.run(ParserProcess(ParseLimits(), count, worker=worker).parse("
        f"Path({str(tmp_path / 'guide.md')!r}), 'guide.md', "
        "on_progress=lambda pid, _: print(pid, flush=True)))\n"
    )
    reading, writing = os.pipe()
    server = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-c", code],
        {"PYTHONPATH": str(REPOSITORY)},
        file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)],
    )
    os.close(writing)
    with open(reading) as told:
        worker = int(told.readline())
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        wait_for_end(worker)


async def test_previews_show_the_text_in_the_chosen_encoding(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes((CASES / "lecture3_gbk.txt").read_bytes())
    async with parser() as process:
        found = await process.preview(path, "lecture3.txt")
        wrong = await process.preview(path, "lecture3.txt", "cp1251")
        with pytest.raises(MaterialError, match="utf-8"):
            await process.preview(path, "lecture3.txt", "utf-8")
    assert found.encoding == "gb18030"
    assert "块表负责逻辑块到物理块的映射" in found.text
    assert found.is_whole
    candidates = dict(found.candidates)
    assert candidates["gb18030"] == found.text[:200]
    assert "utf-8" not in candidates
    assert wrong.encoding == "cp1251"
    assert "块表" not in wrong.text


async def test_a_preview_of_a_pdf_has_no_encoding_to_choose(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(pdf([paragraph_lines(["Paged attention."])]))
    async with parser() as process:
        found = await process.preview(path, "a.pdf")
    assert (found.format, found.encoding, found.candidates) == ("pdf", None, ())
    assert "Paged attention." in found.text


async def test_an_archive_is_listed_and_unpacked_under_names_of_ours(tmp_path: Path) -> None:
    path, into = tmp_path / "file", tmp_path / "into"
    into.mkdir()
    path.write_bytes(zip_of({"term/lab1.md": GUIDE, "../../up.md": GUIDE, "a.exe": b"MZ"}))
    async with parser() as process:
        members = await process.list_archive(path, "term.zip", into)
    assert [(m.name, m.error.code if m.error else None) for m in members] == [
        ("term/lab1.md", None),
        ("../../up.md", None),
        ("a.exe", "unsupported"),
    ]
    files = [m.file for m in members if m.file is not None]
    assert {file.parent for file in files} == {into}
    assert [file.read_bytes() for file in files] == [GUIDE, GUIDE]
    assert sorted(os.listdir(tmp_path)) == ["file", "into"]


@pytest.mark.parametrize("module", ["server.app.materials.worker", "server.app.passages"])
def test_the_worker_needs_neither_the_server_nor_the_engine(module: str) -> None:
    forbidden = ("torch", "numpy", "sqlalchemy", "starlette", "engine", "transformers")
    code = f"import sys, {module}; print([m for m in {forbidden!r} if m in sys.modules])"
    assert run_python(code) == "[]\n"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for_end(pid: int, timeout_s: float = 10.0) -> None:
    """Until the process, which is nobody's child here, has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([descriptor], [], [], timeout_s)
    finally:
        os.close(descriptor)
    assert ended, f"process {pid} is still there"
