"""`ParserProcess`: files are read in processes of their own, one a file, within limits.

A file that makes its reader crash, spin or swell ends that process and nothing else; what
happened is told as a `MaterialError`. The process gets neither environment nor secrets, and is
told of no file but the one it reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path

import msgspec

from server.app.materials.child_process import ChildEndedError, ChildProcess, TooMuchOutputError
from server.app.materials.document import ParseLimits, PassageText, Place
from server.app.materials.errors import REASONS, MaterialError
from server.app.materials.worker_messages import (
    FromWorker,
    Job,
    ListArchive,
    Listed,
    MakePreview,
    Measure,
    MemberRecord,
    Members,
    Parse,
    Parsed,
    PassageRecord,
    Passages,
    Previewed,
    Progressed,
    Refused,
    Sizes,
    decode_from_worker,
    encode,
)
from server.store.passage_index import IndexedWords

log = logging.getLogger(__name__)

CountTokens = Callable[[Sequence[str]], Awaitable[list[int]]]
"""The model's token count of each text."""
OnProgress = Callable[[int, int], None]
"""Called with pages or slides read, and all of them."""

WORKER = ("-P", "-m", "server.app.materials.worker")
_QUICK_JOBS = 2
_THREADED_LINE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ParsedMaterial:
    """A document, its passages and, for each of them, the words it is found by."""

    title: str
    text: str
    format: str
    encoding: str | None
    num_pages: int | None
    warnings: tuple[str, ...]
    passages: tuple[PassageText, ...]
    words: tuple[IndexedWords, ...]


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A file in an archive. `name` is its path in there, for people only: `file` is where it
    was unpacked. Where it was not, `error` says why."""

    name: str
    size: int
    file: Path | None
    error: MaterialError | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """How a file's text begins. `candidates` are encodings that fit its bytes, each with how the
    text begins in it; there are none for formats whose text has no encoding to choose."""

    text: str
    is_whole: bool
    format: str
    encoding: str | None
    candidates: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]


class ParserClosedError(Exception):
    """The server is stopping: the file was not read, through no fault of its own."""


class ParserProcess:
    """Starts the processes and talks with them. Owned by the event loop."""

    def __init__(
        self,
        limits: ParseLimits,
        count_tokens: CountTokens,
        *,
        wall_s: float = 120.0,
        max_workers: int = 1,
        worker: Sequence[str] = WORKER,
    ) -> None:
        """`wall_s`: seconds that one file may take, with all waiting. `max_workers`: files read
        at once; previews and archives have room of their own. `worker`: Python's arguments."""
        self._limits = limits
        self._count_tokens = count_tokens
        self._wall_s = wall_s
        self._worker = worker
        self._slots = asyncio.Semaphore(max_workers)
        self._quick_slots = asyncio.Semaphore(_QUICK_JOBS)
        self._children: set[ChildProcess] = set()
        self._is_closed = False

    async def parse(
        self,
        path: Path,
        name: str,
        *,
        encoding: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> ParsedMaterial:
        """The document in the file at `path`, which is called `name`. Cancelling ends the
        process. Raises MaterialError, ParserClosedError, and what `count_tokens` raises."""
        job = Parse(str(path), name, encoding, self._limits, getpid())
        passages: list[PassageText] = []
        words: list[tuple[str, str]] = []
        async with self._running(job, self._slots) as child:
            while True:
                match await self._next(child, name):
                    case Progressed(done=done, total=total):
                        if on_progress is not None:
                            on_progress(done, total)
                    case Measure(texts=texts):
                        await child.send(encode(Sizes(await self._count_tokens(texts))))
                    case Passages(passages=records):
                        passages += map(_passage, records)
                        words += [(record.heading_words, record.body_words) for record in records]
                    case Parsed() as parsed:
                        return _material(parsed, passages, words)
                    case _:
                        raise MaterialError("parser_crashed", name=name)

    async def list_archive(self, path: Path, name: str, into: Path) -> list[ArchiveMember]:
        """Unpacks the zip file at `path` into the folder `into`, under names of our own. Files
        that cannot become materials are listed with the reason. Raises MaterialError,
        ParserClosedError."""
        job = ListArchive(str(path), name, str(into), self._limits, getpid())
        members: list[ArchiveMember] = []
        async with self._running(job, self._quick_slots) as child:
            while True:
                match await self._next(child, name):
                    case Members(members=records):
                        members += map(_member, records)
                    case Listed():
                        return members
                    case _:
                        raise MaterialError("parser_crashed", name=name)

    async def preview(self, path: Path, name: str, encoding: str | None = None) -> Preview:
        """How the text in the file at `path` begins, in `encoding` where one is chosen. Raises
        MaterialError, ParserClosedError."""
        job = MakePreview(str(path), name, encoding, self._limits, getpid())
        async with self._running(job, self._quick_slots) as child:
            while True:
                match await self._next(child, name):
                    case Progressed():
                        continue
                    case Previewed() as found:
                        return Preview(
                            found.text,
                            found.is_whole,
                            found.format,
                            found.encoding,
                            tuple(found.candidates),
                            found.warnings,
                        )
                    case _:
                        raise MaterialError("parser_crashed", name=name)

    async def close(self) -> None:
        """Ends all processes; who waits for one gets ParserClosedError. Idempotent."""
        self._is_closed = True
        children = tuple(self._children)
        for child in children:
            child.kill()
        for child in children:
            await child.wait()

    @asynccontextmanager
    async def _running(self, job: Job, slots: asyncio.Semaphore) -> AsyncIterator[ChildProcess]:
        """A process that does `job`, within the time. It is gone when the block is left."""
        async with slots:
            if self._is_closed:
                raise ParserClosedError
            try:
                async with asyncio.timeout(self._wall_s):
                    child = await ChildProcess.start(self._worker)
                    self._children.add(child)
                    try:
                        # Closed while it was started: nobody has killed it.
                        if self._is_closed:
                            raise ParserClosedError
                        await child.send(encode(job))
                        yield child
                    finally:
                        # Whoever is cancelled here does not wait; the task goes on all the same.
                        ending = child.end()
                        ending.add_done_callback(lambda _: self._children.discard(child))
                        await asyncio.wait({ending})
            except TimeoutError:
                raise MaterialError("too_slow", name=job.name) from None
            except TooMuchOutputError:
                raise MaterialError("too_big", name=job.name) from None
            except ChildEndedError as ended:
                if self._is_closed:
                    raise ParserClosedError from None
                log.warning("a parser process ended with status %d: %s", ended.status, ended.said)
                code = _code_of(ended)
                raise MaterialError(code, name=job.name) from None

    async def _next(self, child: ChildProcess, name: str) -> FromWorker:
        """The next message. A refusal is raised as what it says."""
        line = await child.receive()
        try:
            if len(line) > _THREADED_LINE_BYTES:
                message = await asyncio.to_thread(decode_from_worker, line)
            else:
                message = decode_from_worker(line)
        except msgspec.MsgspecError as error:
            log.warning("a parser process sent no message that is known")
            raise MaterialError("parser_crashed", name=name) from error
        if isinstance(message, Refused):
            raise _refusal(message, name)
        return message


def _code_of(ended: ChildEndedError) -> str:
    """How a process without a last word ended, as a reason."""
    if ended.was_out_of_time:
        return "too_slow"
    return "too_big" if ended.was_too_big else "parser_crashed"


def _refusal(refused: Refused, name: str) -> MaterialError:
    if refused.code not in REASONS:
        return MaterialError("parser_crashed", name=name)
    return MaterialError(refused.code, **{**refused.facts, "name": name})


def _passage(record: PassageRecord) -> PassageText:
    return PassageText(
        record.headings,
        record.locator,
        Place(**record.place),
        record.text,
        record.num_tokens,
        record.language,
    )


def _material(
    parsed: Parsed, passages: list[PassageText], words: list[tuple[str, str]]
) -> ParsedMaterial:
    return ParsedMaterial(
        title=parsed.title,
        text=parsed.text,
        format=parsed.format,
        encoding=parsed.encoding,
        num_pages=parsed.num_pages,
        warnings=parsed.warnings,
        passages=tuple(passages),
        words=tuple(IndexedWords(parsed.title_words, *columns) for columns in words),
    )


def _member(record: MemberRecord) -> ArchiveMember:
    error = None
    if record.code is not None:
        error = _refusal(Refused(record.code, record.facts), record.name)
    return ArchiveMember(
        record.name, record.size, Path(record.file) if record.file else None, error
    )
