"""The session cookie: its secret on disk, and the cookie on the page's response."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from server.service.auth import Auth, UserId
from server.service.errors import UnauthorizedError

_SECRET_BYTES = 32


def load_secret(configured: str | None, data_dir: Path) -> bytes:
    """The key that signs sessions: the configured one, else the one in `data_dir/secret`, which
    is made on first use, readable by its owner only."""
    if configured is not None:
        return configured.encode()
    path = data_dir / "secret"
    data_dir.mkdir(parents=True, exist_ok=True)
    fresh = data_dir / f"secret.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        pass
    # Written aside and linked into place, so that of two servers started at once one wins whole.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        return path.read_bytes()
    finally:
        fresh.unlink()


class Sessions:
    """Who a request comes from. Immutable."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth

    def start(self, request: Request, response: Response) -> None:
        """Gives the response a session cookie, unless the request brought a valid one. Raises
        UnauthorizedError where a login is needed, which is an API key as the password."""
        if self._auth.user_from_cookie(request.headers.get("cookie")) is not None:
            return
        if self._auth.needs_login:
            value = self._auth.log_in(request.headers.get("authorization"))
            if value is None:
                raise UnauthorizedError("This page needs an API key as the password.")
        else:
            _, value = self._auth.new_session()
        # A client that lies about its way here only harms its own cookie.
        way = request.headers.get("x-forwarded-proto", request.url.scheme)
        secure = way == "https"
        response.headers.append("set-cookie", self._auth.set_cookie(value, secure=secure))

    def user(self, request: HTTPConnection) -> UserId:
        """The user of a request. Raises UnauthorizedError without a valid session."""
        user = self._auth.user_from_cookie(request.headers.get("cookie"))
        if user is None:
            raise UnauthorizedError("There is no session; open the page first.")
        return user
