"""Reload, a lost connection, a second tab: every character once."""

from __future__ import annotations

import random
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, WebSocketRoute, expect

from server.store.messages import INTERRUPTED_DETAIL
from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening
from tests.support.server_process import ServerProcess

# Its answer ends just below the limit of 80 tokens.
LONG_QUESTION = f"{QUESTION} " + " ".join(f"part{n}" for n in range(28))
WHOLE = LONG_QUESTION


def through(routes: list[WebSocketRoute]) -> Callable[[Page], None]:
    """Lets the test cut the page's connections: each passes through a route it keeps."""

    def connect(route: WebSocketRoute) -> None:
        route.connect_to_server()
        routes.append(route)

    def prepare(page: Page) -> None:
        page.route_web_socket("**/ws/v1", connect)

    return prepare


def answered(text: str) -> list[dict[str, Any]]:
    return [*opening(), *deltas(text), finish()]


def keep_stored(page: Page, *answers: dict[str, Any]) -> None:
    """What a reload finds stored: question and answer in turn, as the scripted peer names them."""
    messages: list[dict[str, Any]] = []
    for n, answer in enumerate(answers, 1):
        parent = messages[-1]["id"] if messages else None
        question = {"id": f"q{n}", "parent": parent, "role": "user", "text": f"Question {n}"}
        told = {"id": f"a{n}", "parent": f"q{n}", "role": "assistant", "state": "finished"}
        messages += [question, {**told, "finish_detail": {"type": "eos"}, **answer}]
    stored = {"id": "c1", "course": None, "title": "", "messages": messages, "active_run": None}
    page.route("**/api/conversations/c1*", lambda route: route.fulfill(json=stored))


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


def test_a_question_whose_receipt_was_lost_is_not_asked_twice(open_chat: OpenChat) -> None:
    """The server has stored the question, the page has not heard of it and sends it again."""
    deaf = [False]

    def connect(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        server.on_message(lambda message: None if deaf[0] else route.send(message))

    chat = open_chat(before=lambda page: page.route_web_socket("**/ws/v1", connect))
    chat.ask()
    chat.wait_end()
    deaf[0] = True
    chat.ask(LONG_QUESTION)
    chat.wait_stored("messages.length === 4")
    deaf[0] = False
    chat.page.reload()
    assert chat.wait_end() == WHOLE
    expect(chat.questions).to_have_text([QUESTION, LONG_QUESTION])
    expect(chat.answers).to_have_count(2)


def test_a_lost_connection_loses_and_doubles_nothing(open_chat: OpenChat) -> None:
    routes: list[WebSocketRoute] = []
    chat = open_chat(before=through(routes))
    chat.ask(LONG_QUESTION)
    for num_chars in (30, 90, 150):
        chat.wait_text(num_chars)
        routes[-1].close(code=1011)
    assert chat.wait_end() == WHOLE
    assert len(routes) >= 3
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


CUT = {"finish_reason": "length", "finish_detail": {"type": "max_tokens"}, "can_continue": True}


def edit(chat: ChatPage) -> None:
    chat.page.get_by_role("button", name="Edit the question").click()
    chat.page.locator(".question-input").fill("Other")
    chat.page.locator(".question-input").press("Enter")


def press(name: str) -> Callable[[ChatPage], None]:
    return lambda chat: chat.answer.get_by_role("button", name=name, exact=True).click()


def test_what_was_on_its_way_at_a_reload_arrives_once(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One", **CUT})
    continued = {**opening()[-1], "continued": True}
    more = [continued, *deltas(" and two."), finish()]
    for kind, act, events, text, num_questions in (
        ("continue", press("Continue"), more, "One and two.", 1),
        ("regenerate", press("Regenerate"), answered("Again."), "Again.", 1),
        ("edit", edit, answered("To the other."), "To the other.", 1),
        ("ask", lambda chat: chat.ask("Question 2"), answered("Next."), "Next.", 2),
    ):
        peer.ignore()
        act(chat)
        expect(chat.answer).to_have_attribute("data-state", "running")
        chat.page.reload()
        expect(chat.answer).to_have_attribute("data-state", "running")
        expect(chat.page.locator("#question")).to_be_visible()
        chat.page.wait_for_function("() => document.documentElement.matches('.is-ready')")
        first, again = [message for message in peer.received if message["type"] == kind][-2:]
        assert first == again, kind
        peer.answer(events)
        peer.accept(again)
        assert chat.wait_end() == text, kind
        expect(chat.answers).to_have_count(num_questions)
        assert chat.page.evaluate("sessionStorage.getItem('lectern.outbox')") is None
        # What is stored is as before: the next one begins at the same place.
        chat.page.reload()
        expect(chat.answer.locator(".prose")).to_have_text("One")


def reload_with_unanswered(chat: ChatPage) -> None:
    chat.page.wait_for_function("() => sessionStorage.getItem('lectern.outbox') !== null")
    chat.page.reload()
    chat.page.wait_for_selector("html.is-ready")


def test_an_answer_that_ended_before_its_receipt_came_is_told_once(open_chat: OpenChat) -> None:
    """The server restarted meanwhile: it tells what it has stored, to a page that has read it."""
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer(answered("One"))
    chat.ask("Question 1")
    chat.wait_end()
    peer.ignore()
    chat.ask("Question 2")
    keep_stored(chat.page, {"text": "One"}, {"text": "Two.", "thinking": "Hm."})
    reload_with_unanswered(chat)
    again = peer.sent("ask")[-1]
    peer.answer([{"type": "thinking", "text": "Hm."}, *deltas("Two."), finish()])
    peer.accept(again)
    assert chat.wait_end() == "Two."
    expect(chat.questions).to_have_text(["Question 1", "Question 2"])
    expect(chat.answer.locator(".thinking-text")).to_have_text("Hm.")


def test_a_continuation_begins_where_the_server_says(open_chat: OpenChat) -> None:
    """The page holds more than the answer had when the part began: that part itself, or one that
    was taken back elsewhere. The server counts characters, the page UTF-16 units."""
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("😀ne"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    peer.ignore()
    press("Continue")(chat)
    keep_stored(chat.page, {"text": "😀ne and two", "seams": [3], **CUT})
    reload_with_unanswered(chat)
    start = {**opening()[-1], "continued": True, "base_chars": 3, "base_thinking_chars": 0}
    peer.answer([start, *deltas(" and two"), finish("max_tokens", can_continue=True)])
    peer.accept(peer.sent("continue")[-1])
    assert chat.wait_end() == "😀ne and two"
    expect(chat.answer.locator(".seam")).to_have_count(1)
    peer.answer([start, *deltas(" or more"), finish()])
    press("Continue")(chat)
    assert chat.wait_end() == "😀ne or more"
    expect(chat.answer.locator(".seam")).to_have_count(1)


def test_what_changed_during_a_run_is_read_behind_it(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer(answered("One"))
    chat.ask("Question 1")
    chat.wait_end()
    peer.answer([*opening(), *deltas("Two")])
    chat.ask("Question 2")
    chat.wait_text(3)
    keep_stored(chat.page, {"text": "One, as it is now"}, {"text": "Two"})
    for title in ("A title", "A title"):
        peer.tell({"type": "changed", "conversation": "c1", "title": title})
    peer.send(finish())
    expect(chat.answers.first.locator(".prose")).to_have_text("One, as it is now")
    assert chat.wait_end() == "Two"


def test_an_undo_holds_every_way_on_until_it_is_answered(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One and two"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One and two", "seams": [3], "can_undo": True, **CUT})
    chat.page.reload()
    peer.ignore()
    tail = chat.answer.locator(".answer-tail")
    names = ("Continue", "Regenerate", "Undo the continuation")
    ways = [tail.get_by_role("button", name=name, exact=True) for name in names]
    ways[-1].click()
    for way in ways:
        expect(way).to_be_disabled()
    [undo] = peer.sent("undo")
    peer.tell({"type": "error", "id": undo["id"], "code": "conversation_busy", "message": ""})
    expect(chat.page.locator("#problem")).to_be_visible()
    for way in ways:
        expect(way).to_be_enabled()


def test_a_stop_without_a_connection_is_sent_with_the_next_one(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    peer.ends_when_cancelled = True
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One")])
    chat.ask("Question 1")
    chat.wait_text(3)
    peer.is_deaf = True
    peer.close(1011)
    chat.page.get_by_role("button", name="Stop the answer").click()
    expect(chat.answer).to_have_attribute("data-state", "running")
    assert peer.sent("cancel") == []
    peer.is_deaf = False
    peer.close(1011)
    assert chat.wait_end("stopped") == "One"


def test_half_a_character_is_sent_as_what_stands_for_one(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer(answered("One"))
    chat.question.evaluate(
        "(box) => { box.value = 'half \\ud83d'; box.dispatchEvent(new Event('input')); }"
    )
    chat.question.press("Enter")
    chat.wait_end()
    assert [message["text"] for message in peer.sent("ask")] == ["half \ufffd"]
    expect(chat.questions).to_have_text(["half \ufffd"])


def test_an_undo_on_its_way_at_a_reload_is_done_once(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One and two"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One and two", "seams": [3], "can_undo": True, **CUT})
    chat.page.reload()
    peer.ignore()
    chat.answer.locator(".answer-tail").get_by_role("button", name="Undo the continuation").click()
    chat.page.wait_for_function("() => sessionStorage.getItem('lectern.outbox') !== null")
    chat.page.reload()
    chat.page.wait_for_function("() => document.documentElement.matches('.is-ready')")
    expect(chat.answer.locator(".prose")).to_have_text("One and two")
    first, again = peer.sent("undo")
    assert first == again
    before = {"id": "a1", "parent": "q1", "role": "assistant", "state": "finished", "text": "One"}
    peer.tell({"type": "done", "id": again["id"], "message": {**before, **CUT}})
    expect(chat.answer.locator(".prose")).to_have_text("One")
    expect(chat.answer.locator(".seam")).to_have_count(0)
    assert chat.page.evaluate("sessionStorage.getItem('lectern.outbox')") is None


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


def test_a_message_that_the_server_cannot_take_is_not_sent_for_ever(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.ignore()
    chat.ask("Question 1")
    expect(chat.answer).to_have_attribute("data-state", "running")
    chat.page.wait_for_function("() => sessionStorage.getItem('lectern.outbox') !== null")
    peer.close(1009)
    expect(chat.answer.locator(".notice-red")).to_be_visible()
    expect(chat.question).to_have_value("Question 1")
    chat.page.reload()
    expect(chat.answers).to_have_count(0)
    assert len(peer.sent("ask")) == 1


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
