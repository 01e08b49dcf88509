"""The list of conversations: search, rename, delete, export, pages; and what other devices hear."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, opening

SECOND = "Where is the lab?"


UNTIL_FOUND = """async (query) => {
  for (;;) {
    const reply = await (await fetch(`/api/conversations?q=${query}`)).json();
    if (reply.conversations.length > 0) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}"""


def row(page: Page, title: str) -> Locator:
    return page.locator(".conversation-row").filter(
        has=page.locator(".conversation-title", has_text=title)
    )


def titles(page: Page) -> Locator:
    return page.locator(".conversation-title")


def choose(page: Page, title: str, action: str) -> None:
    """An action of a conversation's menu, by its words."""
    row(page, title).hover()
    row(page, title).get_by_role("button").click()
    page.get_by_role("menuitem", name=action).click()


def rename(page: Page, old: str, new: str) -> None:
    choose(page, old, "Rename")
    box = page.get_by_role("dialog").get_by_label("Title")
    expect(box).to_be_focused()
    expect(box).to_have_value(old)
    box.fill(new)
    box.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.fixture
def chat(open_chat: OpenChat) -> ChatPage:
    """Two conversations; the second one is shown."""
    chat = open_chat()
    for question in (QUESTION, SECOND):
        chat.page.locator("a.new-conversation").click()
        chat.ask(question)
        chat.wait_end()
    expect(titles(chat.page)).to_have_text([SECOND, QUESTION])
    return chat


def test_a_conversation_is_renamed_everywhere(chat: ChatPage, open_chat: OpenChat) -> None:
    # A new one is called after its question.
    expect(chat.page).to_have_title(re.compile(f"^{re.escape(SECOND)} · .* · Lectern$"))
    other = open_chat(storage_state=chat.page.context.storage_state())
    expect(titles(other.page)).to_have_text([SECOND, QUESTION])
    rename(chat.page, SECOND, "  Ways to the <b>lab</b> ")
    expect(titles(chat.page)).to_have_text(["Ways to the <b>lab</b>", QUESTION])
    expect(chat.page).to_have_title(re.compile("^Ways to the <b>lab</b> · .* · Lectern$"))
    # Where the list is not asked for anything.
    expect(titles(other.page)).to_have_text(["Ways to the <b>lab</b>", QUESTION])
    # The focus is back where the menu was opened.
    expect(row(chat.page, "Ways to").get_by_role("button")).to_be_focused()
    chat.page.reload()
    expect(titles(chat.page)).to_have_text(["Ways to the <b>lab</b>", QUESTION])
    expect(chat.page).to_have_title(re.compile("^Ways to the"))
    # Nothing but blanks is no title, and Escape changes nothing.
    choose(chat.page, QUESTION, "Rename")
    box = chat.page.get_by_role("dialog").get_by_label("Title")
    box.fill("   ")
    box.press("Enter")
    expect(box).to_be_visible()
    box.press("Escape")
    expect(titles(chat.page)).to_have_text(["Ways to the <b>lab</b>", QUESTION])


def test_a_conversation_is_deleted_after_a_question(chat: ChatPage, open_chat: OpenChat) -> None:
    page = chat.page
    path = "/c/" + page.url.rsplit("/", 1)[1]
    other = open_chat(path, storage_state=page.context.storage_state())
    expect(other.questions).to_have_text([SECOND])
    choose(page, SECOND, "Delete")
    dialog = page.get_by_role("alertdialog", name="Delete this conversation?")
    expect(dialog).to_contain_text(SECOND)
    # What Enter does without looking is what changes nothing.
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(titles(page)).to_have_text([SECOND, QUESTION])
    choose(page, SECOND, "Delete")
    dialog.get_by_role("button", name="Delete").click()
    expect(titles(page)).to_have_text([QUESTION])
    expect(page.locator(".welcome-title")).to_be_visible()
    assert page.url.endswith("/")
    expect(page.locator("#problem")).to_be_hidden()
    expect(chat.status).to_have_text("Conversation deleted")
    # The device that shows it leaves it, and says why.
    expect(other.page.locator("#problem")).to_contain_text("deleted elsewhere")
    expect(other.page.locator(".welcome-title")).to_be_visible()
    expect(titles(other.page)).to_have_text([QUESTION])
    # Another one than what is shown: that stays.
    row(page, QUESTION).locator("a").click()
    expect(chat.questions).to_have_text([QUESTION])
    choose(other.page, QUESTION, "Delete")
    other.page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(other.page.locator(".conversations-none")).to_be_visible()
    expect(other.page.locator("#question")).to_be_visible()


def test_a_deleted_draft_goes_with_its_conversation(chat: ChatPage) -> None:
    chat.question.fill("half a que")
    choose(chat.page, SECOND, "Delete")
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    expect(titles(chat.page)).to_have_text([QUESTION])
    expect(chat.question).to_have_value("")
    kept = chat.page.evaluate("Object.keys(localStorage).filter(key => key.includes('draft'))")
    assert kept == []


def test_what_is_written_outlives_its_conversation(chat: ChatPage, open_chat: OpenChat) -> None:
    """Deleted on another device, while a question is on its way and more is being written."""
    peer = ScriptedPeer()
    path = "/c/" + chat.page.url.rsplit("/", 1)[1]
    state = chat.page.context.storage_state()
    other = open_chat(path, storage_state=state, before=peer.attach_to)
    expect(other.page.locator("#model-note")).to_contain_text("peer")
    peer.ignore()
    other.ask("on its way")
    other.page.get_by_role("button", name="Edit the question").first.click()
    other.page.locator(".question-input").fill("other words")
    other.question.fill("half a question")
    peer.tell({"type": "deleted", "conversation": path.removeprefix("/c/")})
    expect(other.page.locator("#problem")).to_contain_text("deleted elsewhere")
    expect(other.questions).to_have_count(0)
    expect(other.question).to_have_value("on its way\n\nother words\n\nhalf a question")
    kept = "Object.keys(localStorage).filter((key) => key.startsWith('lectern.draft.'))"
    assert other.page.evaluate(kept) == ["lectern.draft.new"]


def test_what_is_written_in_a_question_outlives_its_edit_elsewhere(
    chat: ChatPage, open_chat: OpenChat
) -> None:
    path = "/c/" + chat.page.url.rsplit("/", 1)[1]
    other = open_chat(path, storage_state=chat.page.context.storage_state())
    theirs = ("Where is the lab, and when may it be used by whom? " * 4).strip()
    for page, text in ((other.page, "my own words"), (chat.page, theirs)):
        page.get_by_role("button", name="Edit the question").click()
        page.locator(".question-input").fill(text)
    chat.page.locator(".question-input").press("Enter")
    stop = other.page.locator("button.stop")
    expect(stop).to_be_visible()
    expect(stop).to_be_hidden()
    mine = other.page.locator(".question-input")
    expect(mine).to_have_value("my own words")
    expect(mine).to_be_focused()
    mine.press("Enter")
    assert other.wait_end() == "my own words"
    expect(other.questions).to_have_text(["my own words"])
    expect(other.page.locator(".question .versions-place")).to_have_text("3/3")


def test_the_focus_goes_to_the_neighbour_of_what_is_deleted(chat: ChatPage) -> None:
    page = chat.page
    for title, focused in (
        (QUESTION, row(page, SECOND).locator("a")),
        (SECOND, chat.question),
    ):
        choose(page, title, "Delete")
        page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
        expect(row(page, title)).to_have_count(0)
        expect(focused).to_be_focused()


@pytest.mark.parametrize("late", ["shown", "lost"])
def test_the_conversation_that_was_opened_last_is_shown(
    chat: ChatPage, open_chat: OpenChat, late: str
) -> None:
    """The one before comes later, or not at all: neither its address nor its failure is told."""
    path = "/c/" + chat.page.url.rsplit("/", 1)[1]
    other = open_chat(storage_state=chat.page.context.storage_state(), loses_network=True)
    page = other.page
    held: list[Route] = []
    first = row(page, QUESTION).locator("a")
    address = f"**{first.get_attribute('href')}".replace("/c/", "/api/conversations/")
    page.route(address, lambda route: held.append(route))
    with page.expect_request(address):
        first.click()
    row(page, SECOND).locator("a").click()
    expect(other.questions).to_have_text([SECOND])
    ended = "requestfinished" if late == "shown" else "requestfailed"
    with page.expect_event(ended, lambda request: "/api/conversations/" in request.url):
        if late == "shown":
            held[0].continue_()
        else:
            held[0].abort()
    # What the page does about it takes no longer than another request.
    page.evaluate("async () => { await (await fetch('/api/me')).json(); }")
    expect(other.questions).to_have_text([SECOND])
    assert page.url.endswith(path)
    expect(page.locator("#problem")).to_be_hidden()


def test_a_question_that_is_left_at_once_is_listed(open_chat: OpenChat) -> None:
    """Before the server has taken it, and long before its answer ends."""
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    peer.ignore()
    chat.ask("Long to answer")
    chat.page.locator("a.new-conversation").click()
    expect(chat.questions).to_have_count(0)
    [message] = peer.sent("ask")
    peer.answer([*opening(), *deltas("It begins")])
    with chat.page.expect_request("**/api/conversations?**"):
        peer.accept(message)
    expect(chat.questions).to_have_count(0)


def test_conversations_are_found_by_title_and_text(chat: ChatPage) -> None:
    page = chat.page
    rename(page, SECOND, "A place to work")
    search = page.get_by_role("searchbox", name="Search conversations")
    search.fill("place")
    expect(titles(page)).to_have_text(["A place to work"])
    expect(page.locator(".conversations-day")).to_have_text("1 conversation found")
    expect(chat.status).to_have_text("1 conversation found")
    # The text of the question, where the title has other words; it is indexed after its answer.
    page.evaluate(UNTIL_FOUND, "lab")
    search.fill("lab")
    found = row(page, "A place to work")
    expect(found.locator(".conversation-snippet mark").first).to_have_text("lab")
    search.fill("nothing holds this")
    expect(page.locator(".conversations-none")).to_have_text(
        "No conversation holds “nothing holds this”."
    )
    expect(titles(page)).to_have_count(0)
    search.press("Escape")
    expect(search).to_have_value("")
    expect(titles(page)).to_have_text(["A place to work", QUESTION])
    search.fill("office")
    expect(titles(page)).to_have_text([QUESTION])
    row(page, QUESTION).locator("a").click()
    expect(chat.questions).to_have_text([QUESTION])
    # What was looked for stays, so that the next one can be opened.
    expect(search).to_have_value("office")
    # A new conversation is seen in the list, whatever was looked for.
    page.locator("a.new-conversation").click()
    expect(search).to_have_value("office")
    chat.ask("Who teaches it?")
    chat.wait_end()
    expect(search).to_have_value("")
    expect(titles(page)).to_have_text(["Who teaches it?", "A place to work", QUESTION])


def test_a_late_reply_of_an_older_search_is_not_shown(open_chat: OpenChat) -> None:
    held: list[Route] = []

    def reply(route: Route, request: Request) -> None:
        if "q=old" in request.url:
            held.append(route)
        elif "q=new" in request.url:
            route.fulfill(json=listing("new"))
        else:
            route.fulfill(json=listing("first"))

    chat = open_chat(before=lambda page: page.route("**/api/conversations?**", reply))
    expect(titles(chat.page)).to_have_text(["first"])
    search = chat.page.locator(".search-input")
    with chat.page.expect_request("**/api/conversations?*q=old*"):
        search.fill("old")
    search.fill("new")
    expect(titles(chat.page)).to_have_text(["new"])
    with chat.page.expect_response("**/api/conversations?*q=old*"):
        held[0].fulfill(json=listing("old"))
    expect(titles(chat.page)).to_have_text(["new"])


def test_a_conversation_is_exported(chat: ChatPage, tmp_path: Path) -> None:
    texts = {}
    for action, kind in (("Export to read", "md"), ("Export as data", "jsonl")):
        with chat.page.expect_download() as download:
            choose(chat.page, SECOND, action)
        name = rf"Where is the lab \d{{4}}-\d\d-\d\d\.{kind}"
        assert re.fullmatch(name, download.value.suggested_filename)
        download.value.save_as(tmp_path / kind)
        texts[kind] = (tmp_path / kind).read_text("utf-8")
    lines = [json.loads(line) for line in texts["jsonl"].splitlines()]
    assert [line.get("role") for line in lines[1:]] == ["user", "assistant"]
    assert lines[1]["text"] == SECOND
    assert SECOND in texts["md"]
    assert texts["md"].startswith("#")
    # The page is still there.
    expect(chat.questions).to_have_text([SECOND])


def test_the_menu_by_keyboard(chat: ChatPage) -> None:
    page = chat.page
    more = row(page, QUESTION).get_by_role("button", name=f"More about “{QUESTION}”")
    row(page, QUESTION).locator("a").focus()
    page.keyboard.press("Tab")
    expect(more).to_be_focused()
    expect(more).to_have_css("opacity", "1")
    page.keyboard.press("Enter")
    items = page.get_by_role("menuitem")
    expect(items.first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(items.last).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(items.first).to_be_focused()
    expect(more).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_have_count(0)
    expect(more).to_be_focused()
    expect(more).to_have_attribute("aria-expanded", "false")


def listing(*titles: str, next: str | None = None) -> dict[str, Any]:
    """A page of the list, as the API gives it."""
    conversations = [
        {"id": f"c{title.replace(' ', '')}", "course": "x", "title": title, "num_messages": 2}
        | {"updated_at": "2026-01-01T00:00:00Z"}
        for title in titles
    ]
    return {"conversations": conversations, "next": next}


def test_a_long_list_comes_in_pages(open_chat: OpenChat) -> None:
    newest, older = [f"new {n}" for n in range(60)], [f"old {n}" for n in range(3)]
    asked: list[str] = []

    def reply(route: Route, request: Request) -> None:
        asked.append(request.url)
        is_second = "before=CURSOR" in request.url
        route.fulfill(json=listing(*older) if is_second else listing(*newest, next="CURSOR"))

    chat = open_chat(before=lambda page: page.route("**/api/conversations?**", reply))
    page = chat.page
    expect(titles(page)).to_have_count(60)
    more = page.get_by_role("button", name="Earlier conversations")
    more.click()
    expect(titles(page)).to_have_text([*newest, *older])
    # Whoever goes on by keyboard goes on where the new ones begin.
    expect(page.locator('.conversation[data-id="cold0"]')).to_be_focused()
    expect(more).to_have_count(0)
    assert len(asked) == 2
    # An answer has ended, so the newest page is read again: what was read behind it stays.
    chat.ask()
    chat.wait_end()
    expect(titles(page)).to_have_count(63)
    assert all("limit=60" in address for address in asked)


def test_a_list_that_cannot_be_read_can_be_tried_again(open_chat: OpenChat) -> None:
    broken = [True]

    def reply(route: Route) -> None:
        if broken[0]:
            route.fulfill(body="no list")
        else:
            route.fulfill(json=listing("there"))

    chat = open_chat(before=lambda page: page.route("**/api/conversations?**", reply))
    note = chat.page.locator(".conversations-none")
    expect(note).to_contain_text("could not be loaded")
    broken[0] = False
    note.get_by_role("button", name="Retry").click()
    expect(titles(chat.page)).to_have_text(["there"])


def test_a_phone_finds_and_manages_conversations(chat: ChatPage, open_chat: OpenChat) -> None:
    phone = open_chat(storage_state=chat.page.context.storage_state())
    page = phone.page
    page.set_viewport_size({"width": 320, "height": 560})
    page.get_by_role("button", name="Open courses and conversations").click()
    row(page, QUESTION).get_by_role("button").click()
    menu = page.get_by_role("menu")
    box = menu.bounding_box()
    assert box is not None
    assert 0 <= box["x"] <= 320 - box["width"]
    assert 0 <= box["y"] <= 560 - box["height"]
    # Escape closes the innermost only: the drawer stays.
    page.keyboard.press("Escape")
    expect(menu).to_have_count(0)
    expect(page.locator("#sidebar")).to_be_in_viewport()
    row(page, QUESTION).locator("a").click()
    expect(page.locator("#sidebar")).to_be_hidden()
    expect(phone.questions).to_have_text([QUESTION])
    assert not phone.is_wider_than_screen()
