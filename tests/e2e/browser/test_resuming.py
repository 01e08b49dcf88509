"""Reload, a lost connection, a second tab: every character once."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, WebSocketRoute, expect

from server.store.messages import INTERRUPTED_DETAIL
from tests.e2e.browser.chat_page import QUESTION
from tests.e2e.browser.conftest import OpenChat

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
    stored = chat.page.url.replace("/c/", "/api/conversations/")
    chat.page.wait_for_function(
        "async (url) => (await (await fetch(url)).json()).messages.length === 4", arg=stored
    )
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
    chat.answer.get_by_role("button", name="Continue").click()
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
