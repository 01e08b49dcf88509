"""Small screens, magnified pages, larger letters: nothing is lost or scrolls sideways."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.chat_page import QUESTION
from tests.e2e.browser.conftest import OpenChat


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_has_no_sideways_scroll(open_chat: OpenChat, width: int) -> None:
    chat = open_chat(viewport={"width": width, "height": 700}, has_touch=True, is_mobile=True)
    assert not chat.is_wider_than_screen()
    # On a touch keyboard Enter breaks the line; the button sends.
    chat.question.fill(f"{QUESTION} {'unbroken' * 20} `{'code' * 30}`")
    chat.question.press("Enter")
    expect(chat.questions).to_have_count(0)
    chat.page.get_by_role("button", name="Send").tap()
    chat.wait_end()
    assert not chat.is_wider_than_screen()
    sidebar = chat.page.locator("#sidebar")
    expect(sidebar).to_be_hidden()
    chat.page.get_by_role("button", name="Open courses and conversations").tap()
    expect(sidebar).to_be_in_viewport()
    chat.page.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    chat.answer.locator(".source summary").first.tap()
    chat.answer.locator(".source .link-button").first.tap()
    expect(chat.page.locator("#source-panel")).to_be_visible()
    assert not chat.is_wider_than_screen()


@pytest.mark.parametrize(
    ("width", "height"), [(640, 360), (320, 256)], ids=["200 per cent", "400 per cent"]
)
def test_a_zoomed_page_can_be_read_and_written(
    open_chat: OpenChat, width: int, height: int
) -> None:
    """As 1280 × 720 and 1280 × 1024 are at such a zoom (WCAG 1.4.4, 1.4.10)."""
    chat = open_chat(viewport={"width": width, "height": height})
    page = chat.page
    # It begins at its beginning, also where not all of the welcome can be seen.
    expect(page.locator(".welcome-title")).to_be_in_viewport()
    expect(page.locator("#newest")).to_be_hidden()
    chat.ask()
    chat.wait_end()
    dock = page.locator(".dock")
    # Even with a long text and its note, most of the window is the transcript's.
    for text in ("", "long " * 5000):
        chat.question.fill(text)
        if text:
            expect(chat.page.locator("#budget")).to_contain_text("tokens")
        box = dock.bounding_box()
        assert box is not None
        assert box["height"] <= 0.4 * height + 1
        assert chat.question.evaluate("node => node.clientHeight") >= 20
        assert page.locator("#scroll").evaluate("node => node.clientHeight") >= 0.55 * height
    page.locator("#scroll").evaluate("node => node.scrollTo(0, 1e6)")
    expect(page.locator(".topbar")).not_to_be_in_viewport()
    assert not chat.is_wider_than_screen()
    # What has the focus is never behind the dock.
    chat.answer.locator("summary").first.focus()
    hidden = """() => { const {left, top, width, height} =
      document.activeElement.getBoundingClientRect();
      const hit = document.elementFromPoint(left + width / 2, top + height / 2);
      return !document.activeElement.contains(hit); }"""
    assert not page.evaluate(hidden)


def test_larger_letters_alone_lose_nothing(open_chat: OpenChat) -> None:
    chat = open_chat(viewport={"width": 1280, "height": 720})
    chat.page.evaluate("document.documentElement.style.fontSize = '200%'")
    # The question's box is as high as its lines are now, before anyone writes into it.
    chat.page.wait_for_function(
        """() => { const {scrollHeight, clientHeight} = document.querySelector('#question');
          return scrollHeight <= clientHeight; }"""
    )
    chat.ask()
    chat.wait_end()
    assert not chat.is_wider_than_screen()
    expect(chat.question).to_be_in_viewport(ratio=1)
    expect(chat.page.locator("a.new-conversation")).to_be_in_viewport(ratio=1)
    # Nothing stands below the page.
    assert chat.page.evaluate(
        "() => document.documentElement.scrollHeight <= document.documentElement.clientHeight"
    )
    # The rest of the sidebar is scrolled to, not lost.
    chat.page.locator("#help").scroll_into_view_if_needed()
    expect(chat.page.locator("#help")).to_be_in_viewport(ratio=1)
