"""Which pages may use this server: browsers name the page that asks in `Origin`."""

from __future__ import annotations

from urllib.parse import urlsplit


def is_same_origin(origin: str | None, host: str | None) -> bool:
    """Whether a page of `origin` may use this server: only one that this server sent. Programs
    send no Origin and are welcome; a browser always does."""
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    is_web = parts.scheme in ("http", "https")
    return is_web and host is not None and parts.netloc.lower() == host.lower()
