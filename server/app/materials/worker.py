"""The parser process: `python -m server.app.materials.worker` does one job and ends.

It takes the job from standard input and tells what it found on standard output, as
`server.app.materials.worker_messages` says. Everything that is slow in Python, or that a hostile
file may break, happens here: parsing, cutting into passages, making index words.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, assert_never

from server.app.materials.document import PassageText
from server.app.materials.errors import MaterialError
from server.app.materials.parser import MaterialSource, parser_for
from server.app.materials.worker_limits import limit_process
from server.app.materials.worker_messages import (
    Job,
    ListArchive,
    Listed,
    MakePreview,
    Measure,
    Members,
    Parse,
    Parsed,
    PassageRecord,
    Passages,
    Previewed,
    Progressed,
    Refused,
    Sizes,
    decode_to_worker,
    encode,
)

_MAX_PASSAGES_A_LINE = 100
_MAX_CHARS_A_MEASURE = 200_000
_PREVIEW_CHARS = 20_000
_SPARE_BYTES = 1024 * 1024


class Channel:
    """Messages to and from the server. Owned by the process's only thread."""

    def __init__(self, source: IO[bytes], sink: IO[bytes]) -> None:
        self._source = source
        self._sink = sink

    def receive(self) -> Job | Sizes:
        """The next message. Ends the process where the server is gone."""
        line = self._source.readline()
        if not line:
            sys.exit("The server is gone.")
        return decode_to_worker(line)

    def send(
        self,
        message: Measure | Progressed | Passages | Parsed | Members | Listed | Previewed | Refused,
    ) -> None:
        self._sink.write(encode(message))
        self._sink.flush()

    def progress(self, done: int, total: int) -> None:
        """Tells the pages read."""
        self.send(Progressed(done, total))

    def measure(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text: the server has the tokenizer."""
        counts: list[int] = []
        pending: list[str] = []
        num_chars = 0
        for text in texts:
            if pending and num_chars + len(text) > _MAX_CHARS_A_MEASURE:
                counts += self._measure(pending)
                pending, num_chars = [], 0
            pending.append(text)
            num_chars += len(text)
        return counts + self._measure(pending)

    def _measure(self, texts: list[str]) -> list[int]:
        if not texts:
            return []
        self.send(Measure(texts))
        answer = self.receive()
        if not isinstance(answer, Sizes) or len(answer.counts) != len(texts):
            sys.exit("The server sent no sizes.")
        return answer.counts


def main() -> None:
    """Does the job that comes first on standard input."""
    sys.excepthook = _report
    # What a library prints must not be taken for a message.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    channel = Channel(sys.stdin.buffer, sink)
    job = channel.receive()
    if isinstance(job, Sizes):
        sys.exit("The server sent no job.")
    limits = job.limits
    limit_process(memory_mb=limits.memory_mb, cpu_s=limits.cpu_s, parent=job.parent)
    spare = bytearray(_SPARE_BYTES)
    try:
        _do(job, channel)
    except MaterialError as error:
        channel.send(Refused(error.code, error.facts))
    except MemoryError:
        del spare
        channel.send(Refused("too_big", {"name": job.name}))


def _do(job: Job, channel: Channel) -> None:
    match job:
        case Parse():
            _parse(job, channel)
        case ListArchive():
            _list_archive(job, channel)
        case MakePreview():
            _preview(job, channel)
        case _:
            assert_never(job)


def _parse(job: Parse, channel: Channel) -> None:
    # Here, so that a job of another kind does not wait for them.
    from server.app.passages import split
    from server.store.analysis import title_words

    source = MaterialSource(job.name, Path(job.path).read_bytes(), job.encoding)
    parser = parser_for(job.name, source.data[:1024])
    document = parser.parse(source, job.limits, channel.progress)
    del source
    passages = split(document, job.limits.passages, channel.measure)
    for begin in range(0, len(passages), _MAX_PASSAGES_A_LINE):
        some = passages[begin : begin + _MAX_PASSAGES_A_LINE]
        channel.send(Passages([_record(passage) for passage in some]))
    channel.send(
        Parsed(
            title=document.title,
            text=document.text,
            format=document.format,
            encoding=document.encoding,
            num_pages=document.num_pages,
            warnings=document.warnings,
            title_words=title_words(document.title, job.name),
        )
    )


def _record(passage: PassageText) -> PassageRecord:
    from server.store.analysis import index_words
    from server.store.passage_items import body_words

    return PassageRecord(
        headings=passage.headings,
        locator=passage.locator,
        place=passage.place.fields(),
        text=passage.text,
        num_tokens=passage.num_tokens,
        language=passage.language,
        heading_words=" ".join(index_words(" ".join(passage.headings[1:]))),
        body_words=" ".join(body_words(passage.text)),
    )


def _list_archive(job: ListArchive, channel: Channel) -> None:
    from server.app.materials.zip_members import unpack

    for member in unpack(Path(job.path), job.name, Path(job.into), job.limits):
        channel.send(Members([member]))
    channel.send(Listed())


def _preview(job: MakePreview, channel: Channel) -> None:
    from server.app.materials.text_preview import preview

    source = MaterialSource(job.name, Path(job.path).read_bytes(), job.encoding)
    channel.send(preview(source, job.limits, _PREVIEW_CHARS))


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Where it happened, without the message: that may hold a piece of somebody's file."""
    frames = traceback.extract_tb(trace)
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    sys.stderr.write(f"{kind.__name__} at {' > '.join(places)}\n")


if __name__ == "__main__":
    main()
