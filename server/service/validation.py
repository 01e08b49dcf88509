"""From msgspec's validation messages to errors that name the field (`messages[0].content`)."""

from __future__ import annotations

import re

import msgspec

from server.service.errors import BadRequestError

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


def refuse_nul(text: str, param: str) -> None:
    """Raises BadRequestError for text that holds the NUL character: neither databases nor
    tokenizers agree on what it means."""
    if "\0" in text:
        raise BadRequestError(f"{param} must not contain the NUL character", param=param)
