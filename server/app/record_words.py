"""What records, notices and exports say, in each language: one catalogue, `record.*.json`, beside
the page's own, which reads the same files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import regex

from server.app.pages import LANGUAGES, load_catalogue
from server.store.schema import Message

_SEPARATOR = " › "
"""Between the place and the headings of a locator."""
_ALIAS = regex.compile(r"(?P<kind>Student|Guest|Former student) (?P<code>\S+)")
_KINDS = {"Student": "asker.student", "Guest": "asker.guest", "Former student": "asker.former"}


class Located(Protocol):
    """A passage with where it stands."""

    @property
    def locator(self) -> str: ...
    @property
    def place(self) -> dict[str, int] | None: ...


@cache
def _catalogue(language: str) -> dict[str, str]:
    return load_catalogue(language, part="record")


def word(language: str, key: str, **values: object) -> str:
    """One string with its values filled in, numbers as the page writes them: 1,100. Of a counted
    one, whose number is `n`, the form for one thing where the language has it; what is not known
    is a dash."""
    catalogue = _catalogue(language)
    if values.get("n") == 1 and f"{key}.one" in catalogue:
        key = f"{key}.one"
    return catalogue[key].format_map({name: _shown(value) for name, value in values.items()})


def _shown(value: object) -> object:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else value


def in_all_languages(key: str, **values: object) -> dict[str, str]:
    """The string by language."""
    return {language: word(language, key, **values) for language in LANGUAGES}


def finish_words(language: str, message: Message) -> str:
    """How an answer ended."""
    detail = message.finish_detail or {}
    name = detail.get("type") or message.state
    if name == "max_tokens" and detail.get("in") == "reasoning":
        name = "max_tokens_thinking"
    key = f"finish.{name}"
    if key not in _catalogue(language):
        key = "finish.other"
    return word(
        language,
        key,
        matched=detail.get("matched", ""),
        limit=message.max_tokens,
        code=detail.get("code", "internal"),
        type=name,
    )


def locator_words(language: str, passage: Located) -> str:
    """Where a passage stands: its place in the file, and the headings above it."""
    place = place_words(language, passage.place or {})
    if place is None:
        return passage.locator
    # A stored locator says the place first, in English.
    return _SEPARATOR.join([place, *passage.locator.split(_SEPARATOR)[1:]])


def place_words(language: str, place: Mapping[str, Any]) -> str | None:
    """Such as "page 3", "slides 7–8", "row 12"; None where a file has no such places."""
    for name in ("page", "slide", "row"):
        first, last = place.get(name), place.get(f"to_{name}")
        if first is None:
            continue
        if last is None or last == first:
            return word(language, f"place.{name}", n=first)
        return word(language, f"place.{name}s", **{"from": first, "to": last})
    return None


def asker_words(language: str, label: str) -> str:
    """What somebody is called whom a pseudonym hides; a name stays as it is."""
    match = _ALIAS.fullmatch(label)
    return label if match is None else word(language, _KINDS[match["kind"]], code=match["code"])
