"""Which pages may use this server, and under which names: `Origin`, `Host` and CORS.

A browser lets any page send a request anywhere; it only keeps the answer from it. That is enough to
make the model work for a foreign page, so what changes something is refused by its `Origin`. And a
foreign name that leads to this machine (DNS rebinding) makes a foreign page the same origin, so a
browser's request must name this server as it is known. Programs send no `Origin`, and are welcome.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from server.service.errors import ForbiddenError
from server.service.http import Headers, Scope, text_header

ANY = "*"
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_PREFLIGHT_S = b"600"
_EXPOSED = b"x-request-id, x-lectern-ignored, retry-after"
_ALLOWED_METHODS = b"GET, POST"
_HEADER_NAMES = re.compile(r"[A-Za-z0-9_\-, ]{1,1000}")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._\-]+)(:\d{1,5})?")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._\-]+)(?::\d{1,5})?")


def is_same_origin(origin: str | None, host: str | None) -> bool:
    """Whether a page of `origin` was sent by the server that the request calls `host`; True
    without an origin."""
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    is_web = parts.scheme in ("http", "https")
    return is_web and host is not None and parts.netloc.lower() == host.lower()


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Whether a name or an address (brackets or not) is of this machine alone."""
    name = host.removeprefix("[").removesuffix("]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class OriginPolicy:
    """`hosts` and `origins` in lower case. `is_local`: the server listens on the loopback address,
    so that a browser which calls it by a name of elsewhere was led here."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    is_local: bool = False

    @classmethod
    def of(
        cls, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), is_local: bool
    ) -> OriginPolicy:
        """Raises ValueError for what is neither a host's name nor an origin, in a sentence."""
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(
                    f"--allowed-hosts: {host!r} is no host's name, such as lectern.example.org."
                )
        for origin in origins:
            if origin != ANY and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"--cors-origins: {origin!r} is no origin, such as https://notes.example.org."
                )
        return cls(frozenset(map(str.lower, hosts)), frozenset(map(str.lower, origins)), is_local)

    def check_host(self, scope: Scope) -> None:
        """Raises ForbiddenError for a request under a name that is not this server's."""
        host = text_header(scope, b"host")
        if host is None or (not self.is_local and not self.hosts):
            return
        match = _HOST.fullmatch(host)
        name = match[1].lower() if match else ""
        if is_loopback(name) or name in self.hosts or host.lower() in self.hosts:
            return
        # A page's origin cannot be led to an address: it is that address.
        if not self.is_local and _is_address(name):
            return
        raise ForbiddenError("This server is not known under that name; --allowed-hosts adds one.")

    def check(self, scope: Scope, *, is_api: bool) -> None:
        """`check_host`, and for what may change something or costs work: ForbiddenError for a
        page of another site, unless it is listed and asks for the API."""
        self.check_host(scope)
        if scope["type"] == "http" and scope["method"] in _SAFE_METHODS:
            return
        if self.is_own(scope) or (is_api and self._listed(scope) is not None):
            return
        raise ForbiddenError("Pages of other sites may not use this server.")

    def is_own(self, scope: Scope) -> bool:
        """Whether a request comes from this server's own page, or from no page. A proxy may have
        put another host in place of the name that the page has."""
        origin = text_header(scope, b"origin")
        if is_same_origin(origin, text_header(scope, b"host")):
            return True
        return any(is_same_origin(origin, host) for host in self.hosts)

    def headers(self, scope: Scope) -> Headers:
        """What a reply of the API must bear so that a listed page can read it."""
        if not self.origins:
            return []
        vary = [(b"vary", b"origin")]
        listed = self._listed(scope)
        if listed is None:
            return vary
        return [
            (b"access-control-allow-origin", listed),
            (b"access-control-expose-headers", _EXPOSED),
            *vary,
        ]

    def preflight(self, scope: Scope) -> Headers | None:
        """The headers of the reply to a browser that asks whether a listed page may send what it
        wants to; None: this is no such question, or the page is not listed."""
        wanted = text_header(scope, b"access-control-request-method")
        listed = self._listed(scope)
        if scope["method"] != "OPTIONS" or wanted is None or listed is None:
            return None
        found = [
            *self.headers(scope),
            (b"access-control-allow-methods", _ALLOWED_METHODS),
            (b"access-control-max-age", _PREFLIGHT_S),
        ]
        names = text_header(scope, b"access-control-request-headers") or ""
        if _HEADER_NAMES.fullmatch(names):
            found.append((b"access-control-allow-headers", names.encode()))
        if text_header(scope, b"access-control-request-private-network") == "true":
            found.append((b"access-control-allow-private-network", b"true"))
        return found

    def _listed(self, scope: Scope) -> bytes | None:
        """The origin as a reply names it, if it is one of `origins`. Cookies are never allowed
        with it, so that `*` gives a page nothing but what any program has."""
        origin = text_header(scope, b"origin")
        if origin is None:
            return None
        if ANY in self.origins:
            return ANY.encode()
        return origin.encode("latin-1") if origin.lower() in self.origins else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
