"""A browser and the scripted server for the page's tests.

The fixtures end with this folder: playwright keeps an event loop running in the main thread while
it lives, and the asynchronous tests elsewhere could not start theirs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("playwright.sync_api", reason="the extra e2e is not installed")

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.school import School, Visit, open_school, visits
from tests.e2e.browser.scripted_peer import ScriptedPeer
from tests.support.server_process import ServerProcess

CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

expect.set_options(timeout=20_000)

OpenChat = Callable[..., ChatPage]


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """An answer repeats the question, three characters in a token, 30 ms for each, 80 at most."""
    folder = tmp_path_factory.mktemp("page")
    # Nearly every question is found: the tests ask for much that no material has.
    options = "--scripted --scripted-token-s 0.03 --default-max-tokens 80 --not-found-score 0.01"
    module = "tests.e2e.browser.repeating_server"
    with ServerProcess(folder, *options.split(), module=module) as process:
        yield process


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    # The first is the same engine without windows, which takes two thirds of the time.
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def school(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[School]:
    """A server with accounts and its first teacher."""
    with open_school(tmp_path_factory.mktemp("school")) as school:
        school.enrol_teacher(browser)
        yield school


@pytest.fixture
def visit(browser: Browser, school: School) -> Iterator[Visit]:
    """Opens pages of the school."""
    with visits(browser, school.address) as visit:
        yield visit


@pytest.fixture
def teacher(visit: Visit, school: School) -> Page:
    """The first teacher's own page."""
    return visit("/teach", storage_state=school.teacher)


@pytest.fixture
def open_chat(browser: Browser, server: ServerProcess) -> Iterator[OpenChat]:
    """Opens the page as a new person (`context`: as that one): options go to the browser
    context. No page may report an error: a script that fails, or something that the policy bars;
    with `loses_network`, that something could not be fetched is none."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def watch(page: Page, *, loses_network: bool, misses: bool) -> None:
        def hear(message: ConsoleMessage) -> None:
            is_network = "net::ERR_" in message.text or "WebSocket connection to" in message.text
            is_expected = (loses_network and is_network) or (misses and "404" in message.text)
            if message.type == "error" and not is_expected:
                errors.append(message.text)

        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", hear)

    def open_page(
        path: str = "/",
        *,
        context: BrowserContext | None = None,
        before: Callable[[Page], None] | None = None,
        loses_network: bool = False,
        misses: bool = False,
        **options: object,
    ) -> ChatPage:
        if context is None:
            context = browser.new_context(base_url=server.address, **options)  # type: ignore[arg-type]
            contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        watch(page, loses_network=loses_network, misses=misses)
        if before is not None:
            before(page)
        # A page behind another one has no focus, whatever its elements say.
        page.bring_to_front()
        page.goto(path)
        page.wait_for_selector("html.is-ready")
        return ChatPage(page)

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def peer() -> ScriptedPeer:
    """A server's end of the WebSocket that says what a test tells it."""
    return ScriptedPeer()


@pytest.fixture
def chat(open_chat: OpenChat, peer: ScriptedPeer) -> ChatPage:
    """The page, connected to `peer`."""
    return open_chat(before=peer.attach_to)
