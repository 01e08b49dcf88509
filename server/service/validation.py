"""What every body is checked for: errors that name the field (`messages[0].content`), metadata, NUL
characters, and fields that nobody knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from server.service.errors import BadRequestError

_MAX_NAMED = 20
"""Ignored fields that a reply names."""
_MAX_NAME_CHARS = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_WHERE = re.compile(r" - at `\$\.?(?P<path>.*)`$")


def told_validation(error: msgspec.ValidationError) -> BadRequestError:
    """The same complaint as an error for the client, with the field's path as `param`."""
    text = str(error)
    where = _WHERE.search(text)
    path = where["path"] if where else None
    reason = text[: where.start()] if where else text
    if path is None and (missing := re.search(r"missing required field `(\w+)`", reason)):
        path = missing[1]
    if path:
        return BadRequestError(f"{path}: {reason[0].lower()}{reason[1:]}", param=path)
    return BadRequestError(reason)


def safe_name(name: str) -> str:
    """A name that a client has made up, as a header or an error may hold it."""
    return _UNSAFE.sub("?", name)[:_MAX_NAME_CHARS] or "?"


def ignored_names(raw: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """The fields of a body that nobody knows, the first of them, safe in a header."""
    unknown = [name for name in raw if name not in known]
    return [safe_name(name) for name in unknown[:_MAX_NAMED]]


MAX_METADATA = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raises BadRequestError for more than OpenAI's reference allows."""
    if len(metadata) > MAX_METADATA:
        raise BadRequestError(f"metadata may hold at most {MAX_METADATA} pairs", param="metadata")
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY_CHARS or len(value) > MAX_METADATA_VALUE_CHARS:
            raise BadRequestError(
                f"a key of metadata may have at most {MAX_METADATA_KEY_CHARS} characters, "
                f"and a value {MAX_METADATA_VALUE_CHARS}",
                param="metadata",
            )


def refuse_nul(text: str, param: str) -> None:
    """Raises BadRequestError for text that holds the NUL character: neither databases nor
    tokenizers agree on what it means."""
    if "\0" in text:
        raise BadRequestError(f"{param} must not contain the NUL character", param=param)
