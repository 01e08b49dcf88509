"""What a question is being changed to is kept like a draft: until it is asked or given up."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat

SECOND = "Where is the lab?"
WORDS = "When are office hours\nin the last week?"
KEPT = "Object.keys(localStorage).filter((key) => key.startsWith('lectern.edit.'))"


@pytest.fixture
def chat(open_chat: OpenChat) -> ChatPage:
    """A conversation with two questions, the first of which is being changed."""
    chat = open_chat()
    for question in (QUESTION, SECOND):
        chat.ask(question)
        chat.wait_end()
    chat.page.get_by_role("button", name="Edit the question").first.click()
    box(chat.page).fill(WORDS)
    return chat


def box(page: Page) -> Locator:
    return page.get_by_role("textbox", name="The question in other words")


@pytest.mark.parametrize("way", ["another conversation", "reload", "new tab"])
def test_an_edit_is_there_when_its_reader_comes_back(chat: ChatPage, way: str) -> None:
    page, address = chat.page, chat.page.url
    if way == "another conversation":
        page.locator("a.new-conversation").click()
        expect(box(page)).to_have_count(0)
        page.locator(".conversation").click()
    elif way == "reload":
        page.reload()
    else:
        page = page.context.new_page()
        page.goto(address)
    page.wait_for_selector("html.is-ready")
    edit = box(page)
    expect(edit).to_have_value(WORDS)
    # It waits, and takes no focus; all of its lines are seen.
    expect(edit).not_to_be_focused()
    page.wait_for_function(
        "(node) => node.clientHeight >= node.scrollHeight", arg=edit.element_handle()
    )
    expect(page.locator(".question-text")).to_have_text([SECOND])
    edit.press("Enter")
    expect(page.locator(".question-text")).to_have_text([WORDS])
    expect(page.locator(".question .versions-place")).to_have_text("2/2")
    assert page.evaluate(KEPT) == []


def test_an_edit_that_is_given_up_does_not_come_back(chat: ChatPage) -> None:
    page = chat.page
    assert len(page.evaluate(KEPT)) == 1
    box(page).press("Escape")
    assert page.evaluate(KEPT) == []
    # Words as they were are nothing to be kept.
    page.get_by_role("button", name="Edit the question").first.click()
    box(page).fill("other words")
    box(page).fill(QUESTION)
    assert page.evaluate(KEPT) == []
    page.reload()
    expect(page.locator(".question-text")).to_have_text([QUESTION, SECOND])


def test_paper_has_what_was_asked(chat: ChatPage) -> None:
    asked = chat.page.locator(".question").first
    expect(asked.locator(".question-asked")).to_be_hidden()
    chat.page.emulate_media(media="print")
    expect(box(chat.page)).to_be_hidden()
    expect(asked.locator(".question-asked")).to_have_text(QUESTION)
    expect(asked.locator(".question-asked")).to_be_visible()


def test_an_edit_goes_with_its_conversation(chat: ChatPage) -> None:
    page = chat.page
    page.locator(".conversation-more").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".conversation")).to_have_count(0)
    page.wait_for_function(f"() => {KEPT}.length === 0")


@pytest.mark.parametrize(
    ("locale", "words"),
    [("en", "An edited question waits: go to it"), ("zh-CN", "有一个改到一半的问题：去看看")],
)
def test_an_edit_out_of_view_is_told_and_found(
    open_chat: OpenChat, locale: str, words: str
) -> None:
    chat = open_chat(locale=locale, viewport={"width": 390, "height": 600})
    page = chat.page
    for question in (QUESTION, *(f"{QUESTION} And {n}?" for n in range(3))):
        chat.ask(question)
        chat.wait_end()
    waits = page.locator(".edit-waits")
    page.locator(".question-edit").first.click()
    edit = page.locator(".question-input")
    edit.fill(WORDS)
    page.reload()
    page.wait_for_selector("html.is-ready")
    expect(edit).not_to_be_in_viewport()
    expect(waits).to_be_visible()
    expect(waits).to_have_text(words)
    waits.press("Enter")
    expect(edit).to_be_in_viewport()
    expect(edit).to_be_focused()
    expect(edit).to_have_value(WORDS)
    expect(waits).to_be_hidden()
    # Nor is anything told of it where it is in view, or elsewhere.
    page.reload()
    expect(waits).to_be_visible()
    page.locator("#new").click()
    expect(page.locator(".answer")).to_have_count(0)
    expect(waits).to_be_hidden()
