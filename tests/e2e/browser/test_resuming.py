"""Reload, a lost connection, a second tab, a server that ends: every character once."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, WebSocketRoute, expect

from server.store.messages import INTERRUPTED_DETAIL
from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.kept_routes import LONG_QUESTION, through
from tests.e2e.browser.scripted_peer import ScriptedPeer
from tests.support.server_process import ServerProcess

WHOLE = LONG_QUESTION


def test_a_reload_in_mid_answer_resumes_it(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask(LONG_QUESTION)
    chat.wait_text(30)
    assert chat.answer.get_attribute("data-state") == "running"
    chat.page.reload()
    assert chat.wait_end() == WHOLE
    expect(chat.questions).to_have_text([LONG_QUESTION])
    expect(chat.answers).to_have_count(1)


def test_a_reload_just_after_asking_asks_once(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask(LONG_QUESTION)
    chat.page.reload()
    assert chat.wait_end() == WHOLE
    expect(chat.questions).to_have_text([LONG_QUESTION])
    expect(chat.page.locator(".conversation")).to_have_count(1)


def test_a_reload_shows_what_was_shown_where_the_address_could_not_follow(
    open_chat: OpenChat,
) -> None:
    """A browser drops an address that is pushed while it is about to reload."""
    chat = open_chat()
    chat.page.evaluate("history.pushState = () => {}")
    chat.ask(LONG_QUESTION)
    assert chat.wait_end() == WHOLE
    assert "/c/" not in chat.page.url
    chat.page.reload()
    expect(chat.questions).to_have_text([LONG_QUESTION])
    assert "/c/" in chat.page.url
    chat.page.goto(chat.page.url.partition("/c/")[0])
    expect(chat.page.locator("body")).to_have_class(re.compile("is-empty"))
    chat.page.reload()
    expect(chat.page.locator("body")).to_have_class(re.compile("is-empty"))


def test_a_lost_connection_loses_and_doubles_nothing(open_chat: OpenChat) -> None:
    routes: list[WebSocketRoute] = []
    chat = open_chat(before=through(routes))
    chat.ask(LONG_QUESTION)
    for num_chars in (30, 90, 150):
        chat.wait_text(num_chars)
        routes[-1].close(code=1011)
    assert chat.wait_end() == WHOLE
    # A slow page may see the last ones when the answer has ended.
    assert len(routes) >= 2
    expect(chat.answers).to_have_count(1)


def test_a_reload_in_mid_continuation_resumes_it(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask(f"{LONG_QUESTION} {' '.join(f'more{n}' for n in range(25))}")
    cut = chat.wait_end()
    chat.answer.get_by_role("button", name="Continue", exact=True).click()
    chat.wait_text(len(cut) + 20)
    chat.page.reload()
    text = chat.wait_end()
    assert text == f"{WHOLE} {' '.join(f'more{n}' for n in range(25))}"
    expect(chat.answer.locator(".seam")).to_have_count(1)


def test_two_tabs_follow_the_same_answer(open_chat: OpenChat) -> None:
    first = open_chat()
    first.ask(LONG_QUESTION)
    first.wait_text(20)
    second = open_chat(first.page.url, context=first.page.context)
    assert first.wait_end() == WHOLE
    assert second.wait_end() == WHOLE


def test_a_question_of_one_tab_appears_in_the_other(open_chat: OpenChat) -> None:
    first = open_chat()
    first.ask()
    first.wait_end()
    second = open_chat(first.page.url, context=first.page.context)
    first.ask(LONG_QUESTION)
    expect(second.questions).to_have_text([QUESTION, LONG_QUESTION])
    assert first.wait_end() == WHOLE
    assert second.wait_end() == WHOLE


def test_another_conversation_meanwhile_does_not_disturb(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask(LONG_QUESTION)
    chat.wait_text(20)
    chat.page.get_by_role("link", name="New conversation").first.click()
    chat.ask()
    assert chat.wait_end() == QUESTION
    chat.page.locator(".conversation", has_text="part0").click()
    expect(chat.questions).to_have_text([LONG_QUESTION])
    assert chat.wait_end() == WHOLE


def test_a_draft_survives_a_reload(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.question.fill("Half a thought")
    chat.page.reload()
    expect(chat.question).to_have_value("Half a thought")


def test_an_answer_that_a_restart_cut_says_so(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask()
    chat.wait_end()
    stored = chat.page.context.request.get(chat.page.url.replace("/c/", "/api/conversations/"))
    conversation = stored.json()
    conversation["messages"][1] |= {
        "text": "When are",
        "state": "interrupted",
        "finish_reason": "abort",
        "finish_detail": INTERRUPTED_DETAIL,
        "can_continue": False,
    }
    chat.page.route("**/api/conversations/*", lambda route: route.fulfill(json=conversation))
    chat.page.reload()
    assert chat.wait_end("interrupted") == "When are"
    expect(chat.answer.locator(".notice-amber")).to_contain_text("was interrupted")
    expect(chat.answer.get_by_role("button", name="Retry")).to_be_visible()


def test_a_socket_that_died_in_sleep_is_noticed_at_once(open_chat: OpenChat) -> None:
    """It looks open, and nothing comes through it any more."""
    deaf = [False]
    routes: list[WebSocketRoute] = []

    def connect(route: WebSocketRoute) -> None:
        dead = len(routes) == 0
        server = route.connect_to_server()
        server.on_message(lambda text: None if dead and deaf[0] else route.send(text))
        route.on_message(lambda text: None if dead and deaf[0] else server.send(text))
        routes.append(route)

    chat = open_chat(before=lambda page: page.route_web_socket("**/ws/v1", connect))
    chat.ask(LONG_QUESTION)
    chat.wait_text(30)
    deaf[0] = True
    chat.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert chat.wait_end() == WHOLE
    assert len(routes) == 2


def test_a_busy_server_is_told_as_such_and_left_in_peace(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    began_s = time.monotonic()
    peer.close(1013, "too many connections; retry after 2000 ms")
    expect(chat.page.locator("#connection")).to_contain_text("too much to do")
    expect(chat.page.locator("#connection")).to_be_hidden()
    assert time.monotonic() - began_s >= 2
    assert len(peer.sent("hello")) == 2


class Cutting:
    """A page whose connection is cut at random, and which asks one long question."""

    def __init__(self, chat: ChatPage, routes: list[WebSocketRoute], seed: int) -> None:
        self.chat = chat
        self.whole = f"Seed {seed}: " + " ".join(f"w{n}" for n in range(seed, seed + NUM_WORDS))
        self._routes = routes
        self._rng = random.Random(seed)
        self._cdp = chat.page.context.new_cdp_session(chat.page)
        self._heal: Callable[[], object] = object

    def cut(self) -> None:
        """One cut of a random kind; it lasts until `heal`."""
        kind = self._rng.choice(("close", "offline", "reload", "freeze"))
        self._heal = object
        if kind == "close":
            self._routes[-1].close(code=1011)
        elif kind == "offline":
            self.chat.page.context.set_offline(offline=True)
            self._routes[-1].close(code=1011)
            self._heal = partial(self.chat.page.context.set_offline, offline=False)
        elif kind == "reload":
            self.chat.page.reload(wait_until="commit")
        else:
            self._cdp.send("Page.setWebLifecycleState", {"state": "frozen"})
            thaw = {"state": "active"}
            self._heal = partial(self._cdp.send, "Page.setWebLifecycleState", thaw)

    def heal(self) -> None:
        self._heal()


NUM_WORDS = 210
NUM_CUTS = 5


@pytest.fixture
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Its answers last some fifteen seconds."""
    options = "--scripted --scripted-token-s 0.05 --default-max-tokens 1000 --not-found-score 0.01"
    folder = tmp_path_factory.mktemp("cuts")
    module = "tests.e2e.browser.repeating_server"
    with ServerProcess(folder, *options.split(), module=module) as process:
        yield process


def test_random_cuts_lose_and_double_no_character(
    open_chat: OpenChat, browser: Browser, slow_server: ServerProcess
) -> None:
    """Four answers at once, each cut five times: closed, offline, reloaded, frozen."""
    contexts: list[BrowserContext] = []
    pages: list[Cutting] = []
    for seed in range(1, 5):
        contexts.append(browser.new_context(base_url=slow_server.address))
        routes: list[WebSocketRoute] = []
        chat = open_chat(context=contexts[-1], before=through(routes), loses_network=True)
        pages.append(Cutting(chat, routes, seed))
    for page in pages:
        page.chat.ask(page.whole)
    rng = random.Random(0)
    num_running = 0
    for _ in range(NUM_CUTS):
        for page in pages:
            num_running += page.chat.answer.get_attribute("data-state") == "running"
            page.cut()
        pages[0].chat.page.context.new_page().wait_for_timeout(rng.randint(50, 600))
        for page in pages:
            page.heal()
        for page in pages:
            expect(page.chat.answers).to_have_count(1)
    assert num_running >= NUM_CUTS, "the cuts came too late"
    for page in pages:
        # Sixteen seconds of it are still to come.
        page.chat.page.set_default_timeout(60_000)
        assert page.chat.wait_end() == page.whole
        expect(page.chat.questions).to_have_text([page.whole])
    for context in contexts:
        context.close()


def test_a_killed_server_comes_back_to_what_it_had_stored(
    open_chat: OpenChat, browser: Browser, tmp_path: Path
) -> None:
    options = "--scripted --scripted-token-s 0.05 --default-max-tokens 200 --not-found-score 0.01"
    module = "tests.e2e.browser.repeating_server"
    with ServerProcess(tmp_path, *options.split(), module=module) as server:
        address = server.address
        context = browser.new_context(base_url=address)
        chat = open_chat(context=context, loses_network=True)
        chat.ask(LONG_QUESTION)
        chat.wait_text(60)
        chat.wait_stored()
        server.send_signal(signal.SIGKILL)
        server.wait()
    expect(chat.page.locator("#connection")).to_contain_text("Connection lost")
    port = address.rpartition(":")[2]
    with ServerProcess(tmp_path, *options.split(), "--port", port, module=module):
        text = chat.wait_end("interrupted")
        assert text
        assert WHOLE.startswith(text)
        expect(chat.answer.locator(".notice-amber")).to_contain_text("was interrupted")
        chat.answer.get_by_role("button", name="Continue", exact=True).click()
        chat.wait_text(len(WHOLE))
        assert chat.wait_end() == WHOLE
        context.close()
