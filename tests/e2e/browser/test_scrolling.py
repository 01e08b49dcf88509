"""Nothing moves under a reader: at the bottom the newest line is always in view, above it the text
stands still, whatever is written, set, coloured or cited below and above."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import Event, ScriptedPeer, deltas, finish, opening, passage
from tests.e2e.browser.writing_server import long_answer

TEXT = long_answer()
SCREENS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}

# Told after the page's own observer, in the same frame, before anything is painted.
WATCH_BOTTOM = """() => {
  const area = document.querySelector('#scroll');
  window.offBottom = [];
  const sizes = new ResizeObserver(() =>
    window.offBottom.push(area.scrollHeight - area.scrollTop - area.clientHeight));
  for (const part of area.children) sizes.observe(part);
}"""
# Where a block stands that the reader looks at, in each frame as it is painted.
WATCH_BLOCK = """() => {
  const area = document.querySelector('#scroll');
  const {top, height} = area.getBoundingClientRect();
  const blocks = [...document.querySelectorAll('.answer .prose > *')];
  const block = blocks.find((block) => block.getBoundingClientRect().top > top + height / 4);
  window.watched = block;
  window.tops = [];
  const look = () => {
    window.tops.push(block.getBoundingClientRect().top);
    requestAnimationFrame(look);
  };
  look();
}"""
MOST_MOVED = "() => Math.max(...window.tops) - Math.min(...window.tops)"


def ask(chat: ChatPage) -> None:
    """By the button: on a phone Enter begins a new line."""
    chat.question.fill("What?")
    chat.page.locator(".send").click()


def matched(text: str, sentence: str) -> Event:
    start = text.index(sentence)
    return {"type": "citation", "n": 1, "passage": "p1", "start": start,
            "end": start + len(sentence), "marks": [], "by": "match"}  # fmt: skip


def write(chat: ChatPage, peer: ScriptedPeer, start: int, end: int, size: int = 60) -> None:
    """Sends a part of the text, a delta after each frame of the page."""
    for event in deltas(TEXT[start:end], size):
        peer.send(event)
        chat.page.evaluate("() => new Promise(requestAnimationFrame)")


def is_quiet(page: Page) -> None:
    """Waits until nothing is left to be set or coloured."""
    page.wait_for_function(
        """() => document.querySelector('.answer .prose').hasAttribute('data-settled')
             && !document.querySelector('.math:not(.math-set)')"""
    )
    page.evaluate(
        """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"""
    )


@pytest.mark.parametrize("screen", SCREENS)
def test_the_newest_line_is_in_view_in_every_frame(open_chat: OpenChat, screen: str) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to, **SCREENS[screen])
    peer.answer([*opening(passage(1)), *deltas(TEXT[:300], 50)])
    ask(chat)
    chat.wait_text(200)
    chat.page.evaluate(WATCH_BOTTOM)
    write(chat, peer, 300, 5000)
    peer.send(matched(TEXT[:5000], "agree."), finish())
    is_quiet(chat.page)
    off_bottom = chat.page.evaluate("() => window.offBottom")
    assert len(off_bottom) > 20
    assert max(off_bottom) <= 1
    expect(chat.answer.locator(".foot-line")).to_be_in_viewport()
    expect(chat.page.get_by_role("button", name="Newest")).to_be_hidden()


@pytest.mark.parametrize("screen", SCREENS)
def test_what_a_reader_looks_at_stands_still(open_chat: OpenChat, screen: str) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to, **SCREENS[screen])
    peer.answer([*opening(passage(1)), *deltas(TEXT[:6000], 200)])
    ask(chat)
    chat.wait_text(4000)
    # Formulas and code that were written are set before the reader goes up.
    chat.page.wait_for_function("() => !document.querySelector('.math:not(.math-set)')")
    area = chat.page.locator("#scroll")
    area.dispatch_event("wheel", {"deltaY": -600})
    area.evaluate("(area) => area.scrollBy(0, -600)")
    newest = chat.page.get_by_role("button", name="Newest")
    expect(newest).to_be_visible()
    chat.page.evaluate(WATCH_BLOCK)
    write(chat, peer, 6000, 9000, 100)
    peer.send(matched(TEXT[:9000], "So $"), matched(TEXT[:9000], "agree."), finish())
    is_quiet(chat.page)
    assert chat.page.evaluate("() => window.watched.isConnected")
    assert chat.page.evaluate("() => window.tops.length") > 20
    assert chat.page.evaluate(MOST_MOVED) <= 1
    expect(newest).to_be_visible()
    newest.click()
    expect(chat.answer.locator(".foot-line")).to_be_in_viewport()
    expect(newest).to_be_hidden()


def test_a_small_step_up_is_not_taken_back(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas(TEXT[:200], 200)])
    ask(chat)
    chat.wait_text(100)
    # All of it is there before the step: text that comes meanwhile makes a distance, too.
    write(chat, peer, 200, 4000, 200)
    chat.page.wait_for_function("() => !document.querySelector('.math:not(.math-set)')")
    chat.page.mouse.move(640, 300)
    chat.page.mouse.wheel(0, -30)
    chat.page.wait_for_function(
        """() => { const area = document.querySelector('#scroll');
             return area.scrollHeight - area.scrollTop - area.clientHeight > 29; }"""
    )
    top = chat.page.evaluate("() => document.querySelector('#scroll').scrollTop")
    write(chat, peer, 4000, 5000)
    assert chat.page.evaluate("() => document.querySelector('#scroll').scrollTop") == top
    # Back at the bottom the text is followed again.
    chat.page.mouse.wheel(0, 5000)
    expect(chat.page.get_by_role("button", name="Newest")).to_be_hidden()
    chat.page.wait_for_function(
        """() => { const area = document.querySelector('#scroll');
             return area.scrollHeight - area.scrollTop - area.clientHeight < 2; }"""
    )
    chat.page.evaluate(WATCH_BOTTOM)
    write(chat, peer, 5000, 6000)
    assert max(chat.page.evaluate("() => window.offBottom")) <= 1


@pytest.mark.parametrize(("width", "height"), [(320, 568), (320, 256), (1280, 800)])
def test_the_way_to_the_newest_covers_nothing(open_chat: OpenChat, width: int, height: int) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to, viewport={"width": width, "height": height})
    peer.answer([*opening(), *deltas(TEXT[:4000], 200), finish()])
    ask(chat)
    is_quiet(chat.page)
    chat.page.locator("#scroll").evaluate("(area) => area.scrollTo(0, 0)")
    newest = chat.page.get_by_role("button", name="Newest")
    expect(newest).to_be_visible()
    parts = [newest, *(chat.page.locator(part) for part in ("#scroll", "#composer"))]
    boxes = [part.bounding_box() for part in parts]
    for other in boxes[1:]:
        assert boxes[0] is not None
        assert other is not None
        is_apart = (
            boxes[0]["y"] >= other["y"] + other["height"]
            or other["y"] >= boxes[0]["y"] + boxes[0]["height"]
            or boxes[0]["x"] >= other["x"] + other["width"]
        )
        assert is_apart, boxes
    # Where it has gone, the bottom is the bottom still.
    newest.click()
    expect(newest).to_be_hidden()
    chat.page.wait_for_function(
        """() => { const area = document.querySelector('#scroll');
             return area.scrollHeight - area.scrollTop - area.clientHeight < 2; }"""
    )


def test_a_list_that_gets_blank_lines_does_not_move(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("Before.\n\n- one\n- two\n- three")])
    ask(chat)
    items = chat.answer.locator(".prose li")
    expect(items).to_have_count(3)
    place = "(all) => all.map((item) => item.getBoundingClientRect().top)"
    before = items.evaluate_all(place)
    peer.send(*deltas("\n\n- four"), finish())
    expect(chat.answer.locator(".prose li > p")).to_have_count(4)
    assert items.evaluate_all(place)[:3] == pytest.approx(before, abs=0.5)
