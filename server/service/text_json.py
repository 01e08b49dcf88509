"""`text_json`: the JSON of a text, remembered where it is short.

Most of what is streamed are texts of single tokens, of which a vocabulary has only so many: to look
one up takes a twentieth of the time that encoding it takes."""

from __future__ import annotations

from server.service.events import to_json

MAX_CHARS = 32
"""Of a text that is remembered. Longer ones are merged deltas, which hardly come again."""
MAX_TEXTS = 65_536
"""Then all are forgotten: some 10 MB."""

_known: dict[str, bytes] = {}


def text_json(text: str) -> bytes:
    """As `events.to_json(text)`. For the event loop's thread."""
    found = _known.get(text)
    if found is None:
        found = to_json(text)
        if len(text) <= MAX_CHARS:
            if len(_known) >= MAX_TEXTS:
                _known.clear()
            _known[text] = found
    return found
