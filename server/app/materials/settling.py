"""What reading a file makes of its material's row and passages. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from server.app.materials.document import ParseLimits
from server.app.materials.files import StagedFile
from server.app.materials.import_queue import Given, Renewal
from server.app.materials.naming import guess
from server.app.materials.parser_process import ParsedMaterial
from server.store.analysis import title_words
from server.store.materials import NewPassage, Settle, Settled
from server.store.schema import Material

PASSAGE_VERSION = 5
"""Raised when passages or index words come out differently: materials are then read anew."""
_MAX_TITLE_CHARS = 300


def made_from(limits: ParseLimits, encoding: str | None) -> str:
    """Of everything but its bytes that passages are made from, so that any change is seen."""
    return hashlib.sha256(
        msgspec.json.encode([PASSAGE_VERSION, limits.least_tokens, limits.most_tokens, encoding])
    ).hexdigest()


def new_passages(parsed: ParsedMaterial, words_of_title: str) -> list[NewPassage]:
    """The passages as they are stored."""
    return [
        NewPassage(
            heading=passage.heading,
            locator=passage.locator or parsed.title,
            text=passage.text,
            num_tokens=passage.num_tokens,
            place=passage.place.fields() or None,
            language=passage.language,
            words=msgspec.structs.replace(words, title=words_of_title),
        )
        for passage, words in zip(parsed.passages, parsed.words, strict=True)
    ]


def renewal_row(renewal: Renewal) -> dict[str, Any]:
    """A renewal as its material's row keeps it; `attempts`: how often it was begun."""
    staged = renewal.staged
    bytes_of = {"name": staged.name, "sha256": staged.sha256, "size": staged.size} if staged else {}
    chosen = {"encoding": renewal.encoding} if renewal.sets_encoding else {}
    return {"attempts": 0, **bytes_of, **chosen}


def stored_renewal(row: Mapping[str, Any], path: Callable[[str], Path]) -> Renewal:
    """What `renewal_row` has kept; `path` gives the place of bytes with a digest."""
    staged = None
    if "sha256" in row:
        staged = StagedFile(path(row["sha256"]), row["name"], row["sha256"], row["size"])
    return Renewal(staged, row.get("encoding"), "encoding" in row, is_promised=True)


def settled_reading(
    parsed: ParsedMaterial,
    name: str,
    given: Given,
    renewal: Renewal | None,
    limits: ParseLimits,
) -> Settle:
    """What a material becomes once it is read; what a teacher has set by hand stays."""
    staged = renewal.staged if renewal else None

    def settle(now: Material) -> Settled:
        edited = set(now.edited)
        if renewal is not None and renewal.sets_encoding:
            (edited.add if renewal.encoding else edited.discard)("encoding")
        elif staged is not None:
            edited.discard("encoding")
        by_name, by_title = guess(name), guess(parsed.title)
        kinds = (given.kind, by_name.kind, by_title.kind, now.kind)
        weeks = (given.week, by_name.week, by_title.week, now.week)
        fields: dict[str, Any] = {
            "name": name,
            "title": parsed.title[:_MAX_TITLE_CHARS],
            "kind": next((kind for kind in kinds if kind and kind != "other"), "other"),
            "week": next((week for week in weeks if week is not None), None),
        }
        fields = {key: value for key, value in fields.items() if key not in edited}
        fields |= {
            "state": "ready",
            "error_code": None,
            "error_facts": None,
            "attempts": 0,
            "format": parsed.format,
            "text": parsed.text,
            "encoding": parsed.encoding,
            "num_pages": parsed.num_pages,
            "warning": " ".join(parsed.warnings) or None,
            "edited": sorted(edited),
            "renewal": None,
            "made_from": made_from(limits, parsed.encoding if "encoding" in edited else None),
        }
        if staged is not None:
            fields |= {"content_sha256": staged.sha256, "size_bytes": staged.size}
        return Settled(fields, edited_title_words(now, fields))

    return settle


def chosen_encoding(material: Material) -> str | None:
    """The encoding that somebody chose; None where it was found out."""
    return material.encoding if "encoding" in material.edited else None


def edited_title_words(material: Material, fields: dict[str, Any]) -> str:
    """The words of a material's title once these fields are changed."""

    def value(column: str) -> Any:
        return fields.get(column, getattr(material, column))

    return title_words(value("title"), value("name"), kind=value("kind"), week=value("week"))
