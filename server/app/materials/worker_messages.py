"""What the server and the parser process say to each other: one JSON object a line.

server → process   one job (`Parse`, `ListArchive` or `MakePreview`), then `Sizes`
process → server   any number of `Progressed`, `Measure` (answered by `Sizes`) and
                   `Passages` or `Members`, then `Parsed`, `Listed`, `Previewed` or `Refused`

No library of the application is needed to read them.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import msgspec

from server.app.materials.document import ParseLimits


class Parse(msgspec.Struct, frozen=True, tag="parse"):
    """Read the file at `path`, whose name is `name`, and cut it into passages."""

    path: str
    name: str
    encoding: str | None
    limits: ParseLimits
    parent: int
    """The server's process id: a process that outlives its server must end."""


class ListArchive(msgspec.Struct, frozen=True, tag="list_archive"):
    """Unpack the zip file at `path` into the folder `into`, under names of our own."""

    path: str
    name: str
    into: str
    limits: ParseLimits
    parent: int


class MakePreview(msgspec.Struct, frozen=True, tag="preview"):
    """Show the beginning of the text in the file at `path`."""

    path: str
    name: str
    encoding: str | None
    limits: ParseLimits
    parent: int


Job: TypeAlias = Parse | ListArchive | MakePreview


class Sizes(msgspec.Struct, frozen=True, tag="sizes"):
    """Tokens of each text of the `Measure` before."""

    counts: list[int]


class Progressed(msgspec.Struct, frozen=True, tag="progress"):
    """Pages or slides read, of all."""

    done: int
    total: int


class Measure(msgspec.Struct, frozen=True, tag="measure"):
    """Asks how many tokens each text has."""

    texts: list[str]


class PassageRecord(msgspec.Struct, frozen=True, array_like=True):
    """A passage and its index words by column."""

    headings: tuple[str, ...]
    locator: str
    place: dict[str, int]
    text: str
    num_tokens: int
    language: str
    heading_words: str
    body_words: str


class Passages(msgspec.Struct, frozen=True, tag="passages"):
    """Some passages of the document, in order."""

    passages: list[PassageRecord]


class Parsed(msgspec.Struct, frozen=True, tag="parsed"):
    """The document, after its last passage. `title_words` are every passage's."""

    title: str
    text: str
    format: str
    encoding: str | None
    num_pages: int | None
    warnings: tuple[str, ...]
    title_words: str


class MemberRecord(msgspec.Struct, frozen=True):
    """A file in an archive: where it was unpacked, or why it was not."""

    name: str
    size: int
    file: str | None
    code: str | None = None
    facts: dict[str, Any] = {}


class Members(msgspec.Struct, frozen=True, tag="members"):
    """Some files of the archive, in order."""

    members: list[MemberRecord]


class Listed(msgspec.Struct, frozen=True, tag="listed"):
    """All members were told."""


class Previewed(msgspec.Struct, frozen=True, tag="previewed"):
    """The beginning of a text. `candidates` are encodings that fit, each with how the text
    begins in it."""

    text: str
    is_whole: bool
    format: str
    encoding: str | None
    candidates: list[tuple[str, str]]
    warnings: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The file's fault: a code of `server.app.materials.errors.REASONS` and what fills its
    sentences."""

    code: str
    facts: dict[str, Any]


FromWorker: TypeAlias = (
    Progressed | Measure | Passages | Parsed | Members | Listed | Previewed | Refused
)
ToWorker: TypeAlias = Parse | ListArchive | MakePreview | Sizes

_ENCODER = msgspec.json.Encoder()
_FROM_WORKER: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_TO_WORKER: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)

_Message = TypeVar("_Message", bound=msgspec.Struct)


def encode(message: msgspec.Struct) -> bytes:
    """The message as a line."""
    return _ENCODER.encode(message) + b"\n"


def decode_from_worker(line: bytes) -> FromWorker:
    """What the process said. Raises msgspec.MsgspecError for anything else."""
    return _FROM_WORKER.decode(line)


def decode_to_worker(line: bytes) -> ToWorker:
    """What the server said. Raises msgspec.MsgspecError for anything else."""
    return _TO_WORKER.decode(line)
