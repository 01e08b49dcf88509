"""The session cookie: its secret on disk, and the cookie on the page's response."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from server.app.account_sessions import AccountSessions
from server.app.people import Person
from server.service.auth import COOKIE_MAX_AGE_S, Auth, UserId, is_token
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
    """Who a request comes from. Owned by the event loop; keeps no state of its own."""

    def __init__(self, auth: Auth, accounts: AccountSessions | None = None) -> None:
        """`accounts`: the sessions of people with accounts, where there are any."""
        self._auth = auth
        self._accounts = accounts

    def start(self, request: Request, response: Response) -> None:
        """Gives the response a guest's session cookie, unless the request brought a valid one.
        Raises UnauthorizedError where people must log in."""
        if self._auth.user_from_cookie(request.headers.get("cookie")) is not None:
            return
        if self._auth.needs_login:
            raise UnauthorizedError("Please log in.")
        _, value = self._auth.new_session()
        self.put(request, response, value)

    def put(
        self, request: Request, response: Response, value: str, *, max_age_s: int = COOKIE_MAX_AGE_S
    ) -> None:
        """Gives the response the cookie that keeps a session value; for 0 seconds: drops it."""
        # A client that lies about its way here only harms its own cookie.
        way = request.headers.get("x-forwarded-proto", request.url.scheme)
        cookie = self._auth.set_cookie(value, secure=way == "https", max_age_s=max_age_s)
        response.headers.append("set-cookie", cookie)

    def user(self, request: HTTPConnection) -> UserId:
        """The user of a request. Raises UnauthorizedError without a valid session."""
        user = self._auth.user_from_cookie(request.headers.get("cookie"))
        if user is None:
            raise UnauthorizedError("There is no session; open the page first.")
        return user

    def person(self, request: HTTPConnection) -> Person:
        """The same, with what is known of them."""
        user = self.user(request)
        account = self._accounts.person(user) if self._accounts else None
        return account or Person(user)

    def token(self, request: HTTPConnection) -> str | None:
        """The token of an account's session; None for a guest."""
        value = self._auth.session_from_cookie(request.headers.get("cookie"))
        return value if value is not None and is_token(value) else None
