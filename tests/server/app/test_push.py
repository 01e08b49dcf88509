"""What a user's other sockets hear of the user's own conversations, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from server.service.auth import UserId
from server.service.user_sessions import UserSessions
from tests.server.app.asgi_socket import AppSocket, socket_of
from tests.server.app.site import ALICE, BOB, QUESTION, Site, new_key, open_site

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

PUSHED = ("opened", "changed", "deleted")
SLOW = {"token_s": 0.02}


@pytest.fixture
async def site(tmp_path: Path, anyio_backend: object) -> AsyncIterator[Site]:
    async with open_site(tmp_path, lambda _: "word " * 12, script=SLOW) as site:
        yield site


class Desk:
    """Sockets of a page, a phone beside it, and somebody else's page."""

    def __init__(self, page: AppSocket, phone: AppSocket, other: AppSocket) -> None:
        self.page, self.phone, self.other = page, phone, other

    async def nothing_leaked(self) -> None:
        """The other page hears its own pong first."""
        await self.other.send("ping", id="here")
        told = await self.other.until("pong", "error", "accepted", "delta", *PUSHED)
        assert told["type"] == "pong", told


@pytest.fixture
async def desk(site: Site) -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        sockets = []
        for user in (ALICE, ALICE, BOB):
            socket = await stack.enter_async_context(socket_of(site, site.session(user)))
            await socket.send("hello")
            await socket.until("welcome")
            sockets.append(socket)
        yield Desk(*sockets)


async def ask(socket: AppSocket, **fields: Any) -> dict[str, Any]:
    await socket.send("ask", id=new_key(), text=QUESTION, **fields)
    accepted = await socket.until("accepted", "error", "opened")
    assert accepted["type"] == "accepted", "who follows the run is not told that it has begun"
    return accepted


async def test_a_phone_hears_of_an_answer_and_can_follow_it(site: Site, desk: Desk) -> None:
    accepted = await ask(desk.page)
    opened = await desk.phone.until(*PUSHED)
    assert opened == {
        "type": "opened",
        "run": accepted["run"],
        "conversation": accepted["conversation"],
        "message": accepted["message"],
        "title": QUESTION,
    }
    await desk.phone.send("attach", run=opened["run"])
    ends = [await socket.until("finish", "opened") for socket in (desk.page, desk.phone)]
    assert [end["type"] for end in ends] == ["finish", "finish"]
    await desk.nothing_leaked()


async def test_what_goes_on_again_is_told_too(site: Site, desk: Desk) -> None:
    accepted = await ask(desk.page, options={"max_tokens": 4})
    await desk.phone.until("opened")
    await desk.page.until("finish")
    await desk.phone.send("continue", id=new_key(), message=accepted["message"])
    assert (await desk.phone.until("accepted", "error", "opened"))["type"] == "accepted"
    opened = await desk.page.until("opened")
    assert (opened["message"], opened["title"]) == (accepted["message"], QUESTION)
    await desk.phone.until("finish")
    await desk.nothing_leaked()


async def test_an_answer_told_again_is_no_news(site: Site, desk: Desk) -> None:
    key = new_key()
    await desk.page.send("ask", id=key, text=QUESTION)
    await desk.page.until("finish")
    await desk.phone.until("opened")
    await site.app.chat.ask(ALICE, site.ask(QUESTION, id=key))
    await desk.phone.send("ping")
    assert (await desk.phone.until("pong", *PUSHED))["type"] == "pong"


async def test_every_socket_hears_of_a_new_name_and_of_the_end(site: Site, desk: Desk) -> None:
    accepted = await ask(desk.page)
    await desk.page.until("finish")
    await desk.phone.until("opened")
    one = f"/api/conversations/{accepted['conversation']}"
    async with site.client() as client:
        assert (await client.patch(one, json={"title": "Hours"})).status_code == 200
        for socket in (desk.page, desk.phone):
            assert await socket.until(*PUSHED) == {
                "type": "changed",
                "conversation": accepted["conversation"],
                "title": "Hours",
            }
        assert (await client.delete(one)).status_code == 204
        for socket in (desk.page, desk.phone):
            assert await socket.until(*PUSHED) == {
                "type": "deleted",
                "conversation": accepted["conversation"],
            }
    await desk.nothing_leaked()


async def test_who_may_be_served_no_more_hears_nothing(site: Site) -> None:
    student = await site.account("student", "ana", "demo")
    async with socket_of(site, site.session(student)) as socket:
        await socket.send("hello")
        await socket.until("welcome")
        await site.app.accounts.log_out(site.tokens[student])
        site.app.service.user_sessions.changed(student, conversation="c", title="secret")
        assert (await socket.until(*PUSHED))["type"] == "close"


class _Listener:
    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def hear(self, message: bytes) -> None:
        self.heard.append(message)

    def follows(self, run_id: str) -> bool:
        return run_id == "r1"


async def test_a_socket_that_has_left_hears_nothing() -> None:
    sessions, one, two = UserSessions(), _Listener(), _Listener()
    sessions.enter(UserId("u"), one)
    sessions.enter(UserId("u"), one)
    sessions.enter(UserId("v"), two)
    sessions.changed(UserId("u"), conversation="c", title="t")
    sessions.opened(UserId("u"), run="r1", conversation="c", message="m", title="t")
    sessions.leave(UserId("u"), one)
    sessions.leave(UserId("u"), one)
    sessions.deleted(UserId("u"), conversation="c")
    assert len(one.heard) == 1
    assert two.heard == []
