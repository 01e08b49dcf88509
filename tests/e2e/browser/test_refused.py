"""Questions that the server has refused among those that it has answered: they stand behind all of
these, hide nothing, and are asked again as what is asked now."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, wait_until
from tests.e2e.browser.test_lost_receipts import answered, press
from tests.e2e.browser.test_unsent import leave, refuse_one, unsent

REFUSED, SECOND, THIRD = "Which room is it in?", "Who holds them?", "And when is the exam?"
TOO_MANY = "Too many people are asking"


class Refuser:
    """Between a page and the real server: each of `refused` is refused once, and what was asked
    before is kept in `asked`."""

    def __init__(self, *refused: str) -> None:
        self.refused = set(refused)
        self.asked: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []

    def attach_to(self, page: Page) -> None:
        page.route_web_socket("**/ws/v1", self._connect)

    def _connect(self, route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        route.on_message(lambda data: self._up(route, server, str(data)))
        server.on_message(lambda data: self._down(route, str(data)))

    def _up(self, route: WebSocketRoute, server: WebSocketRoute, data: str) -> None:
        message = json.loads(data)
        text = message.get("text")
        if message["type"] in ("ask", "edit"):
            self.asked.append(message)
            if text in self.refused:
                self.refused.discard(text)
                error = {"code": "queue_full", "message": "full", "retryable": True}
                route.send(json.dumps({"type": "error", "id": message["id"], **error}))
                return
        server.send(data)

    def _down(self, route: WebSocketRoute, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "error":
            self.errors.append(message)
        route.send(data)


def ask(chat: ChatPage, text: str) -> None:
    chat.ask(text)
    chat.wait_end()


def ask_refused(chat: ChatPage, text: str) -> None:
    chat.ask(text)
    expect(chat.answer.locator(".notice-red")).to_contain_text(TOO_MANY)


def asked_around(open_chat: OpenChat, *before: str) -> tuple[ChatPage, Refuser]:
    """REFUSED is refused behind what is answered `before`, and SECOND answered behind it."""
    refuser = Refuser(REFUSED)
    chat = open_chat(before=refuser.attach_to)
    for text in before:
        ask(chat, text)
    ask_refused(chat, REFUSED)
    ask(chat, SECOND)
    return chat, refuser


def test_a_reload_hides_nothing_behind_it(open_chat: OpenChat) -> None:
    """It was the newest branch, and what was asked then did not know of what it hid."""
    chat, refuser = asked_around(open_chat, QUESTION)
    for _ in range(2):
        chat.page.reload()
        expect(chat.questions).to_have_text([QUESTION, SECOND, REFUSED])
        expect(chat.answer.locator(".notice-red")).to_contain_text(TOO_MANY)
    press("Retry")(chat)
    chat.wait_end()
    _, _, second, again = refuser.asked
    assert second["parent"] != again["parent"]
    chat.page.reload()
    expect(chat.questions).to_have_text([QUESTION, SECOND, REFUSED])
    expect(chat.page.locator(".versions:visible")).to_have_count(0)
    assert refuser.errors == []


def test_what_is_asked_behind_it_follows_what_was_answered(open_chat: OpenChat) -> None:
    chat, _ = asked_around(open_chat, QUESTION)
    chat.page.reload()
    expect(chat.questions).to_have_text([QUESTION, SECOND, REFUSED])
    ask(chat, THIRD)
    chat.answers.nth(2).get_by_role("button", name="Discard").click()
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Discard").click()
    texts = [QUESTION, SECOND, THIRD]
    expect(chat.questions).to_have_text(texts)
    chat.page.reload()
    expect(chat.questions).to_have_text(texts)


def test_a_first_one_is_asked_in_the_conversation_that_has_begun_since(
    open_chat: OpenChat,
) -> None:
    """It began another one, whose id then was that of what was shown."""
    chat, refuser = asked_around(open_chat)
    address = chat.page.url
    chat.answers.first.get_by_role("button", name="Retry").click()
    expect(chat.questions).to_have_text([SECOND, REFUSED])
    chat.wait_end()
    ask(chat, THIRD)
    chat.page.reload()
    expect(chat.questions).to_have_text([SECOND, REFUSED, THIRD])
    assert chat.page.url == address
    assert refuser.errors == []


def test_a_first_one_is_found_in_the_conversation_that_has_begun_since(
    open_chat: OpenChat,
) -> None:
    chat, _ = asked_around(open_chat)
    chat.page.reload()
    expect(chat.questions).to_have_text([SECOND, REFUSED])
    expect(chat.page.locator(".unsent")).to_be_hidden()


def test_an_edit_is_a_draft_again(open_chat: OpenChat) -> None:
    words = "When are office hours this week?"
    refuser = Refuser(words)
    chat = open_chat(before=refuser.attach_to)
    ask(chat, QUESTION)
    chat.page.get_by_role("button", name="Edit the question").click()
    box = chat.page.get_by_role("textbox", name="The question in other words")
    box.fill(words)
    box.press("Enter")
    expect(chat.answer.locator(".notice-red")).to_contain_text(TOO_MANY)
    chat.page.get_by_role("button", name="Previous version").first.click()
    expect(chat.questions).to_have_text([QUESTION])
    ask(chat, SECOND)
    for _ in range(2):
        chat.page.reload()
        expect(box).to_have_value(words)
        expect(chat.questions).to_have_text([SECOND])  # and the one in the box
    box.press("Enter")
    chat.wait_end()
    expect(chat.questions).to_have_text([words])
    assert refuser.errors == []


def test_one_that_is_on_its_way_comes_behind_it(chat: ChatPage, peer: ScriptedPeer) -> None:
    refuse_one(chat, peer, "Question 1")
    peer.ignore()
    chat.ask("Question 2")
    wait_until(chat.page, lambda: len(peer.sent("ask")) == 2)
    chat.page.reload()
    # Each of them is to begin a conversation, and what is on its way is waited for.
    expect(chat.questions).to_have_text(["Question 2"])
    expect(unsent(chat).locator(".conversation-title")).to_have_text(["Question 1"])


def test_the_list_discards_only_what_it_names(chat: ChatPage, peer: ScriptedPeer) -> None:
    for text in ("Question 1", "Question 2"):
        refuse_one(chat, peer, text)
    leave(chat)
    expect(unsent(chat).locator(".conversation-title")).to_have_text(["Question 1"])
    expect(chat.page.get_by_role("button", name="Discard")).to_have_count(0)
    unsent(chat).click()
    press("Discard")(chat)
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Discard").click()
    expect(chat.questions).to_have_text(["Question 1"])


def gone(page: Page) -> None:
    error = {"code": "not_found", "message": "gone"}
    page.route(
        "**/api/conversations/c1*", lambda route: route.fulfill(status=404, json={"error": error})
    )


@pytest.mark.parametrize("way", ["told", "not told"])
def test_one_whose_conversation_is_gone_is_not_lost(
    open_chat: OpenChat, peer: ScriptedPeer, way: str
) -> None:
    chat = open_chat(before=peer.attach_to, misses=True)
    peer.answer(answered("One"))
    chat.ask("Question 1")
    chat.wait_end()
    refuse_one(chat, peer, "Question 2")
    gone(chat.page)
    if way == "told":
        peer.tell({"type": "deleted", "conversation": "c1"})
        expect(chat.question).to_have_value("Question 2")
        chat.page.reload()
        expect(chat.question).to_have_value("Question 2")
        expect(chat.questions).to_have_count(0)
        return
    chat.page.reload()
    expect(chat.questions).to_have_text(["Question 2"])
    peer.answer(answered("Two"))
    press("Retry")(chat)
    assert chat.wait_end() == "Two"
    assert not {"conversation", "parent"} & set(peer.sent("ask")[-1])


def test_nobody_else_finds_it(chat: ChatPage, peer: ScriptedPeer) -> None:
    refuse_one(chat, peer, "A secret question")
    chat.page.context.clear_cookies()
    chat.page.reload()
    chat.page.wait_for_selector("html.is-ready")
    expect(chat.questions).to_have_count(0)
    expect(unsent(chat)).to_have_count(0)
    assert chat.page.evaluate("sessionStorage.getItem('lectern.refused')") is None


def test_a_dialog_that_outlives_its_conversation_discards_nothing(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    box = chat.page.get_by_role("textbox", name="The question in other words")
    refuse_one(chat, peer, "Question 1")
    leave(chat)
    unsent(chat).click()
    chat.page.get_by_role("button", name="Edit the question").click()
    box.fill("Other words")
    press("Discard")(chat)
    chat.page.evaluate("history.back()")
    expect(chat.questions).to_have_count(0)
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Discard").click()
    unsent(chat).click()
    expect(box).to_have_value("Other words")
