"""The keyboard's ways: shortcuts, their sheet, and a tour without a mouse."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.e2e.browser.chat_page import QUESTION
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.ime import Ime
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, passage

TABLE = """async () => {
  const main = document.querySelector('script[type="module"]').src;
  const {SHORTCUTS, keyNames} = await import(new URL('./shell/shortcuts.js', main));
  return SHORTCUTS.map((one) => ({...one, names: keyNames(one, false), mac: keyNames(one, true)}));
}"""


@pytest.fixture
def peer() -> ScriptedPeer:
    peer = ScriptedPeer()
    peer.answer([*opening(), *deltas("Yes:\n\n```py\nprint(1)\n```\n"), finish()])
    return peer


def test_the_sheet_lists_every_shortcut(open_chat: OpenChat) -> None:
    chat = open_chat()
    page = chat.page
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.get_by_role("button", name="Help and keyboard shortcuts").click()
    sheet = page.get_by_role("dialog", name="Help")
    expect(sheet).to_be_visible()
    sheet.get_by_role("tab", name="Keyboard").click()
    loaded = [url.rsplit("/", 1)[1] for url in requests]
    assert loaded == ["help-sheet.js", "help.en.json"]
    table: list[dict[str, Any]] = page.evaluate(TABLE)
    rows = sheet.locator("tr")
    expect(rows).to_have_count(len(table))
    for shortcut in table:
        shown = sheet.locator(f"tr[data-shortcut={shortcut['id']}]")
        assert shown.locator("kbd").all_inner_texts() == shortcut["names"]
        # A label that nobody has translated would show as its key.
        assert shown.locator("th").inner_text() not in ("", shortcut["label"])
    assert len({shortcut["keys"] for shortcut in table}) == len(table)
    # Nothing is pressed by a letter alone, which somebody may dictate (WCAG 2.1.4).
    assert all("+" in one["keys"] or len(one["keys"]) > 1 for one in table)
    by_id = {shortcut["id"]: shortcut for shortcut in table}
    assert by_id["newConversation"]["mac"] == ["⌘", "⇧", "O"]
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)
    expect(page.get_by_role("button", name="Help and keyboard shortcuts")).to_be_focused()
    page.keyboard.press("Control+/")
    expect(sheet.get_by_role("tab", name="Keyboard")).to_have_attribute("aria-selected", "true")
    # What is open above the page has its own keys.
    page.keyboard.press("Control+k")
    expect(sheet.get_by_role("button", name="Close")).to_be_focused()


def test_the_sheet_opens_once_however_often_it_is_asked_for(open_chat: OpenChat) -> None:
    page = open_chat().page
    held: list[Route] = []
    page.route("**/help.en.json", lambda route: held.append(route))
    with page.expect_request("**/help.en.json"):
        page.keyboard.press("Control+/")
    page.keyboard.press("Control+/")
    page.get_by_role("button", name="Help and keyboard shortcuts").dblclick()
    for route in held:
        route.continue_()
    expect(page.locator("dialog[open]")).to_have_count(1)
    expect(page.get_by_role("tab", name="Keyboard")).to_have_attribute("aria-selected", "true")


def test_a_sheet_that_cannot_be_loaded_says_so(open_chat: OpenChat) -> None:
    page = open_chat(loses_network=True).page
    page.route("**/help*.js*", lambda route: route.abort())
    button = page.get_by_role("button", name="Help and keyboard shortcuts")
    button.click()
    expect(page.locator("#problem")).to_contain_text("The server cannot be reached")
    # The keyboard's ways need no word that is not there.
    page.unroute("**/help*.js*")
    page.route("**/help.en.json", lambda route: route.abort())
    page.keyboard.press("Control+/")
    sheet = page.get_by_role("dialog", name="Help")
    expect(sheet.locator(".shortcuts")).to_be_visible()
    expect(sheet.get_by_role("tab")).to_have_count(0)
    page.keyboard.press("Escape")
    page.unroute("**/help.en.json")
    button.click()
    expect(sheet.locator(".word")).to_have_count(10)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_words_of_the_page_are_explained(
    open_chat: OpenChat, peer: ScriptedPeer, locale: str
) -> None:
    """From the button, and from where they stand, with the keyboard alone."""
    chat = open_chat(before=peer.attach_to, locale=locale)
    page = chat.page
    peer.answer([*opening(passage(1), passage(2, used=False)), *deltas("Yes."), finish()])
    chat.ask()
    chat.wait_end()
    button = page.locator("#help")
    button.focus()
    page.keyboard.press("Enter")
    words = page.locator("dialog[open] .word")
    expect(words).to_have_count(10)
    for word in words.all():
        expect(word.locator("dt")).not_to_have_text("")
        assert len(word.locator("dd").inner_text()) > 20
        assert "undefined" not in word.inner_text()
    # The arrows go from tab to tab.
    tabs = page.get_by_role("tab")
    page.keyboard.press("Tab")
    expect(tabs.first).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(tabs.last).to_be_focused()
    expect(words.first).to_be_hidden()
    expect(page.locator("dialog .shortcuts")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(words.first).to_be_visible()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()
    chat.answer.locator(".details-toggle").click()
    chat.answer.locator(".left-out > summary").click()
    for opener, name in (
        (chat.answer.locator(".meter .help-link"), "window"),
        (chat.answer.locator(".left-out .help-link"), "passages"),
        (chat.answer.locator(".details-links button"), "token"),
    ):
        opener.focus()
        page.keyboard.press("Enter")
        asked = page.locator(f"dialog[open] .word[data-word={name}]")
        expect(asked).to_be_focused()
        expect(asked).to_be_in_viewport(ratio=1)
        page.keyboard.press("Escape")
        expect(opener).to_be_focused()


def test_shortcuts_do_what_they_say(open_chat: OpenChat, peer: ScriptedPeer) -> None:
    chat = open_chat(before=peer.attach_to, permissions=["clipboard-read", "clipboard-write"])
    page = chat.page
    for number in range(4):
        chat.ask(f"Question {number}")
        chat.wait_end()
    clipboard = "navigator.clipboard.readText()"
    page.keyboard.press("Control+Shift+Y")
    expect(chat.status).to_have_text("Copied")
    assert page.evaluate(clipboard) == "Yes:\n\n```py\nprint(1)\n```\n"
    page.evaluate("navigator.clipboard.writeText('')")
    page.keyboard.press("Control+Shift+;")
    page.evaluate(
        f"""async () => {{
             while ((await {clipboard}) === '') await new Promise(requestAnimationFrame);
           }}"""
    )
    assert page.evaluate(clipboard) == "print(1)\n"
    # From question to question: backwards from the end, and not past the first one.
    page.set_viewport_size({"width": 900, "height": 420})
    page.evaluate("document.querySelector('#scroll').scrollTo(0, 1e6)")
    page.keyboard.press("Alt+ArrowUp")
    focused = page.locator(".question:focus .question-text")
    last = int(focused.inner_text().removeprefix("Question "))
    for number in range(last - 1, -1, -1):
        page.keyboard.press("Alt+ArrowUp")
        expect(focused).to_have_text(f"Question {number}")
        expect(focused).to_be_in_viewport()
    page.keyboard.press("Alt+ArrowUp")
    expect(focused).to_have_text("Question 0")
    page.keyboard.press("Alt+ArrowDown")
    expect(focused).to_have_text("Question 1")
    page.keyboard.press("Shift+Escape")
    expect(chat.question).to_be_focused()
    # In an empty box, the last question is edited; in another one, the cursor moves.
    chat.question.fill("one\ntwo")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".question textarea")).to_have_count(0)
    chat.question.fill("")
    page.keyboard.press("ArrowUp")
    expect(page.locator(".question textarea")).to_have_value("Question 3")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Control+Shift+O")
    expect(page.locator(".welcome-title")).to_be_visible()
    expect(chat.question).to_be_focused()


def test_shortcuts_leave_an_input_method_alone(open_chat: OpenChat, peer: ScriptedPeer) -> None:
    chat = open_chat(before=peer.attach_to)
    chat.ask()
    chat.wait_end()
    chat.question.focus()
    with Ime(chat.page) as ime:
        ime.compose("a")
        # Candidates are gone through by arrows, and left by Escape.
        ime.key("ArrowUp")
        ime.key("Escape")
        ime.choose("啊", "Enter")
    expect(chat.question).to_have_value("啊")
    expect(chat.page.locator(".question textarea")).to_have_count(0)


def test_a_stop_by_key_keeps_the_focus(open_chat: OpenChat, peer: ScriptedPeer) -> None:
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("Still")])
    chat.ask()
    chat.wait_text(5)
    stop = chat.page.locator("button.stop")
    stop.focus()
    for _ in range(2):
        chat.page.keyboard.press("Enter")
        expect(stop).to_be_disabled()
        expect(stop).to_be_focused()
    assert len(peer.sent("cancel")) == 1
    peer.send(finish("cancelled"))
    chat.wait_end("stopped")
    expect(chat.question).to_be_focused()


def test_escape_closes_the_innermost_and_then_stops(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    chat = open_chat(before=peer.attach_to)
    page = chat.page
    peer.answer([*opening(), *deltas("Still going")])
    chat.ask()
    chat.wait_text(8)
    page.keyboard.press("Control+/")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.set_viewport_size({"width": 500, "height": 700})
    expect(page.locator("#sidebar")).to_be_hidden()  # the page has heard of it
    page.keyboard.press("Control+k")
    search = page.get_by_role("searchbox")
    expect(search).to_be_focused()
    search.fill("x")
    page.keyboard.press("Escape")
    expect(search).to_have_value("")
    expect(page.locator("#sidebar")).to_be_in_viewport()
    page.keyboard.press("Escape")
    expect(page.locator("#sidebar")).to_be_hidden()
    assert peer.sent("cancel") == []
    page.keyboard.press("Escape")
    expect(page.locator(".stop")).to_be_disabled()
    assert len(peer.sent("cancel")) == 1


def test_a_tour_without_a_mouse(open_chat: OpenChat) -> None:
    """From the first Tab to a question, its source, and back to the box."""
    chat = open_chat()
    page = chat.page
    expect(chat.question).to_be_focused()
    page.locator(".brand").focus()
    page.keyboard.press("Shift+Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(chat.question).to_be_focused()
    chat.question.press_sequentially(QUESTION)
    page.keyboard.press("Enter")
    chat.wait_end()
    # Backwards from the box, in reading order, to the first source.
    opener = chat.answer.locator(".source summary").first
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        if opener.evaluate("node => node === document.activeElement"):
            break
    expect(opener).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#source-panel .panel-close")).to_be_focused()
    page.keyboard.press("Tab")
    title = page.locator("#panel-title").inner_text()
    expect(page.get_by_role("region", name=title)).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#source-panel")).to_be_hidden()
    expect(chat.answer.locator(".source .link-button").first).to_be_focused()
    page.keyboard.press("Shift+Escape")
    expect(chat.question).to_be_focused()
