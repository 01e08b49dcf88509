"""Titles of conversations: made from a question, numbered where one goes on, and as the name of a
file. Pure."""

from __future__ import annotations

from datetime import date

import regex

MAX_TITLE_CHARS = 200
_QUESTION_CHARS = 120
# Also the signs that turn the direction of what follows: a title stands between other texts.
_UNSHOWN = regex.compile(r"[\p{Cc}\p{Cs}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_FILE_BYTES = 160
"""Of a title in the name of a file: file systems take 255 bytes for all of it."""
_PARTING = regex.compile(r"[/\\:|]+")
_UNNAMED = regex.compile(r"[\p{C}*?\"<>%]")
"""Signs that some system or browser takes in no name, or changes."""
_NUMBERED = regex.compile(r"(?P<title>.*) \((?P<number>\d{1,3})\)", regex.DOTALL)


def one_line(text: str) -> str:
    """A text as a title shows it: on one line, without signs that are not seen."""
    return " ".join(_UNSHOWN.sub(" ", text).split())


def title_of(question: str) -> str:
    """A conversation's title: its first question on one line, cut at a word if it is long."""
    line = one_line(question)
    if len(line) <= _QUESTION_CHARS:
        return line
    cut = line[:_QUESTION_CHARS]
    at_word = cut.rpartition(" ")[0]
    return (at_word if len(at_word) > _QUESTION_CHARS // 2 else cut) + "…"


def next_title(title: str) -> str:
    """The title of what a conversation is carried on in: numbered, from 2. What is too long for
    that is cut in front of the number."""
    match = _NUMBERED.fullmatch(title)
    number = 2 if match is None else int(match["number"]) + 1
    stem, end = title if match is None else match["title"], f" ({number})"
    room = MAX_TITLE_CHARS - len(end)
    return (stem if len(stem) <= room else stem[: room - 1].rstrip() + "…") + end


def file_name(title: str, day: date, ending: str) -> str:
    """The name of a file with what a conversation says: its title as far as file systems take it,
    the `day`, and the `ending` behind a dot."""
    safe = _UNNAMED.sub("", _PARTING.sub("-", one_line(title)))
    cut = safe.encode()[:_FILE_BYTES].decode(errors="ignore")
    # A dot at the beginning hides a file.
    stem = " ".join(cut.split()).strip(" .-") or "Lectern"
    return f"{stem} {day.isoformat()}.{ending}"
