"""What a conversation is called: above it, in the list beside others, in what leads to another."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, Route, WebSocketRoute, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.test_conversations import choose, rename, row, titles

PHONE = {"viewport": {"width": 320, "height": 568}}
LONG = "How does the late policy of the third lab work for who hands in on a Monday or a {}"


def heading(page: Page) -> Locator:
    return page.get_by_role("main").get_by_role("heading", level=1)


def fill_window(page: Page) -> None:
    """Answers end as they would with a full window, which would take long to fill here."""

    def connect(route: WebSocketRoute) -> None:
        full = ('"type":"eos"', '"type":"context_window"')
        server = route.connect_to_server()
        server.on_message(lambda text: route.send(str(text).replace(*full)))

    page.route_web_socket("**/ws/v1", connect)


@pytest.mark.parametrize("screen", [{}, PHONE], ids=["desktop", "phone"])
def test_the_title_stands_above_what_is_read(
    open_chat: OpenChat, screen: dict[str, dict[str, int]]
) -> None:
    chat = open_chat(**screen)
    page = chat.page
    # The course alone is shown, and who goes by headings finds one.
    expect(heading(page)).to_have_text("New conversation")
    question = LONG.format("Tuesday")
    chat.ask(question)
    expect(heading(page)).to_have_text(question)
    expect(heading(page)).to_have_attribute("title", question)
    chat.wait_end()
    box, bar = heading(page).bounding_box(), page.locator(".topbar").bounding_box()
    assert box is not None
    assert bar is not None
    # On one line, and in view.
    assert 12 < box["height"] < 30
    assert bar["y"] <= box["y"] < box["y"] + box["height"] <= bar["y"] + bar["height"]
    assert not chat.is_wider_than_screen()
    context = page.context
    other = open_chat(page.url, storage_state=context.storage_state())
    expect(heading(other.page)).to_have_text(question)
    rename(other.page, question, "Late work")
    for shown in (other.page, page):
        expect(heading(shown)).to_have_text("Late work")
        expect(heading(shown)).to_have_attribute("title", "Late work")


def test_titles_that_look_the_same_are_told_apart(open_chat: OpenChat) -> None:
    chat = open_chat()
    page = chat.page
    asked = [LONG.format("Tuesday"), QUESTION, LONG.format("Friday")]
    for question in asked:
        page.locator("a.new-conversation").click()
        chat.ask(question)
        chat.wait_end()
    expect(titles(page)).to_have_text(asked[::-1])
    cut = "(title) => title.scrollWidth > title.clientWidth + 1"
    for question in (asked[0], asked[2]):
        shown = row(page, question)
        assert not shown.locator(".conversation-title").evaluate(cut), "all of it is seen"
        expect(shown.locator(".conversation-about")).to_have_text(re.compile(r"^\d{1,2}:\d\d"))
        expect(shown.locator("a")).to_have_attribute("title", question)
    expect(row(page, QUESTION).locator(".conversation-about")).to_have_count(0)
    # Alone again, it is one line among others.
    choose(page, asked[0], "Delete")
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(row(page, asked[2]).locator(".conversation-about")).to_have_count(0)
    assert row(page, asked[2]).locator(".conversation-title").evaluate(cut)


def test_equal_titles_of_other_days_have_other_times(open_chat: OpenChat) -> None:
    listed = [
        {"id": f"c{day}", "course": "x", "title": "Hours", "num_messages": 2, "carried_from": None}
        | {"updated_at": f"2026-01-0{day}T12:00:00Z"}
        for day in (2, 1)
    ]

    def reply(route: Route) -> None:
        route.fulfill(json={"conversations": listed, "next": None})

    chat = open_chat(before=lambda page: page.route("**/api/conversations?**", reply))
    about = chat.page.locator(".conversation-about")
    expect(about).to_have_text([re.compile("^Jan 2, "), re.compile("^Jan 1, ")])


def carried(open_chat: OpenChat) -> tuple[ChatPage, str]:
    """A page that shows the summary of a conversation, and the address of that one."""
    chat = open_chat(before=fill_window)
    chat.ask()
    chat.wait_end()
    before = chat.page.url
    chat.answer.get_by_role("button", name="New conversation with a summary").click()
    expect(chat.page).not_to_have_url(before)
    expect(chat.page).to_have_url(re.compile("/c/"))
    chat.wait_end()
    return chat, before


def test_a_summary_leads_back_and_what_it_is_of_leads_on(open_chat: OpenChat) -> None:
    chat, before = carried(open_chat)
    page, after = chat.page, chat.page.url
    back = chat.answers.first.get_by_role("link", name=QUESTION, exact=True)
    on = chat.answer.get_by_role("link", name=f"{QUESTION} (2)")
    for _ in range(2):  # as it was told, then as it is stored
        expect(back).to_be_visible()
        expect(chat.answers.first).to_contain_text("Continued from")
        page.reload()
    expect(row(page, f"{QUESTION} (2)").locator(".conversation-about")).to_contain_text("summary")
    back.click()
    expect(page).to_have_url(before)
    expect(chat.questions).to_have_text([QUESTION])
    expect(chat.answer).to_contain_text("Continued in")
    on.click()
    expect(page).to_have_url(after)
    expect(chat.questions).to_have_count(0)


def test_links_follow_new_titles_and_ends(open_chat: OpenChat) -> None:
    chat, before = carried(open_chat)
    page = chat.page
    other = open_chat(before.partition("/c/")[1] + before.partition("/c/")[2],
                      storage_state=page.context.storage_state())  # fmt: skip
    expect(other.answer.get_by_role("link", name=f"{QUESTION} (2)")).to_be_visible()
    rename(other.page, f"{QUESTION} (2)", "Hours, second part")
    link = other.answer.get_by_role("link", name="Hours, second part")
    expect(link).to_be_visible()
    # The row of the one that is shown: its menu belongs to the other title now.
    rename(other.page, QUESTION, "First part")
    expect(chat.answer.get_by_role("link", name="First part")).to_be_visible()
    choose(other.page, "First part", "Delete")
    other.page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(chat.answer).to_contain_text("was deleted")
    expect(chat.answer.get_by_role("link")).to_have_count(0)
    page.reload()
    expect(chat.answer).to_contain_text("was deleted")
