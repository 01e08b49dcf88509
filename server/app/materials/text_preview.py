"""`preview`: how a file's text begins, and in which encodings its bytes could be text."""

from __future__ import annotations

import codecs

import regex

from server.app.materials.decoding import ENCODINGS, decode_text
from server.app.materials.document import ParseLimits
from server.app.materials.parser import MaterialSource, format_of, no_progress, parser_for
from server.app.materials.worker_messages import Previewed

_SAMPLE_BYTES = 64 * 1024
_CANDIDATE_CHARS = 200
_NOT_TEXT = regex.compile(r"[\p{Co}\p{Cn}\x00-\x08\x0e-\x1f\x7f-\x9f]")
_MAX_NOT_TEXT_SHARE = 0.01


def preview(source: MaterialSource, limits: ParseLimits, num_chars: int) -> Previewed:
    """The first `num_chars` characters. Raises MaterialError."""
    parser = parser_for(source.name, source.data[:1024])
    known = format_of(source.name)
    if known is None or not known.is_text:
        document = parser.parse(source, limits, no_progress)
        text, encoding, warnings = document.text, None, document.warnings
        candidates = []
    else:
        decoded = decode_text(source.data, name=source.name, encoding=source.encoding)
        text, encoding, warnings = decoded.text, decoded.encoding, decoded.warnings
        candidates = encoding_candidates(source.data)
    return Previewed(
        text=text[:num_chars],
        is_whole=len(text) <= num_chars,
        format=parser.format,
        encoding=encoding,
        candidates=candidates,
        warnings=warnings,
    )


def encoding_candidates(data: bytes) -> list[tuple[str, str]]:
    """Encodings in which `data` is text, each with how it begins in it."""
    found = []
    for encoding in ENCODINGS:
        text = _begin(data, encoding)
        if text is not None:
            found.append((encoding, text[:_CANDIDATE_CHARS]))
    return found


def _begin(data: bytes, encoding: str) -> str | None:
    sample = data[:_SAMPLE_BYTES]
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    try:
        text = decoder.decode(sample, len(sample) == len(data))
    except UnicodeDecodeError:
        return None
    strange = len(_NOT_TEXT.findall(text))
    if strange > _MAX_NOT_TEXT_SHARE * len(text):
        return None
    if (
        encoding.startswith("utf-16")
        and sample.count(0) * 20 < len(sample)
        and not _is_marked(data)
    ):
        return None  # any bytes are UTF-16, of characters that nobody wrote
    return text.removeprefix("\ufeff")


def _is_marked(data: bytes) -> bool:
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
