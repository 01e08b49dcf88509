"""`through`: routes by which a test cuts the page's connections to the real server, and a question
whose answer is long enough to be cut."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, WebSocketRoute

from tests.e2e.browser.chat_page import QUESTION

# Its answer ends just below the limit of 80 tokens.
LONG_QUESTION = f"{QUESTION} " + " ".join(f"part{n}" for n in range(28))


def through(routes: list[WebSocketRoute]) -> Callable[[Page], None]:
    """Lets the test cut the page's connections: each passes through a route it keeps."""

    def connect(route: WebSocketRoute) -> None:
        route.connect_to_server()
        routes.append(route)

    def prepare(page: Page) -> None:
        page.route_web_socket("**/ws/v1", connect)

    return prepare
