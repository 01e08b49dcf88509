"""On paper: the whole conversation, how its answers ended, and its sources."""

from __future__ import annotations

import re
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.screens import finished
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, passage

LAST_LINE = "This is the last line of the longest answer."


def printed(page: Page, folder: Path) -> list[str]:
    """The text of each printed page, blanks as one."""
    path = folder / "printed.pdf"
    page.pdf(path=path, format="A4", print_background=False)
    document = pdfium.PdfDocument(path)
    try:
        return [re.sub(r"\s+", " ", sheet.get_textpage().get_text_bounded()) for sheet in document]
    finally:
        document.close()


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_a_conversation_is_printed_whole(
    open_chat: OpenChat, tmp_path: Path, color_scheme: str
) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to, color_scheme=color_scheme)
    finished(chat, peer)
    lines = [f"Line {n} of many." for n in range(120)]
    sources = [{**passage(n), "text": f"Source {n} says it."} for n in range(1, 8)]
    sources.append({**passage(8, used=False), "text": "Nobody read this one."})
    long = "\n\n".join([*lines, LAST_LINE])
    end = finish("max_tokens", can_continue=True, limit=512)
    peer.answer([*opening(*sources, turns_kept=0, turns_dropped=1), *deltas(long, 400), end])
    chat.ask("Tell me everything.")
    chat.wait_end()
    sheets = printed(chat.page, tmp_path)
    assert len(sheets) >= 3
    text = " ".join(sheets)
    for wanted in (
        *("When is the room open", "Tell me everything.", "Line 0 of many.", LAST_LINE),
        # The end of the answer, what supports it, and what was left out.
        *("512 tokens", "Source 7 says it.", "Nobody read this one.", "page 4"),
        *("Question", "Answer", "https://example.org/rooms", "[1]"),
    ):
        assert wanted in text, wanted
    for unwanted in ("New conversation", "Ask about the course", "Regenerate", "Copy", "Continue"):
        assert unwanted not in text, unwanted
    # The question stands above its answer on the same sheet.
    assert any("Tell me everything." in sheet and "Line 0 of many." in sheet for sheet in sheets)
    # The screen is as it was.
    expect(chat.answer.locator(".sources details[open]")).to_have_count(0)
    chat.page.wait_for_function(
        """() => { const area = document.querySelector('#scroll');
          return area.scrollHeight - area.clientHeight - area.scrollTop <= 2; }"""
    )


def test_paper_has_no_buttons_and_no_address_twice(open_chat: OpenChat, tmp_path: Path) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    text = "See https://example.org/bare and [the plan](https://example.org/plan)."
    peer.answer([*opening(), *deltas(text), finish("max_tokens", can_continue=True, limit=512)])
    chat.ask("Where does it stand?")
    chat.wait_end()
    chat.answer.locator(".details-toggle").click()
    expect(chat.answer.locator(".details-links")).to_be_visible()
    paper = " ".join(printed(chat.page, tmp_path))
    assert paper.count("example.org/bare") == 1
    assert "the plan (https://example.org/plan)" in paper
    chat.page.emulate_media(media="print")
    expect(chat.answer.locator(".action:visible, .details-links:visible")).to_have_count(0)
    # An answer that is not there yet: what is being done for it is for a screen.
    chat.page.emulate_media(media="screen")
    peer.answer([])
    chat.ask("And the next?")
    expect(chat.answer.locator(".waiting")).to_be_visible()
    chat.page.emulate_media(media="print")
    expect(chat.answer.locator(".waiting")).to_be_hidden()


def test_the_printed_colours_are_dark_on_white(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to, color_scheme="dark")
    finished(chat, peer)
    chat.page.emulate_media(media="print")
    brightness = """(selector) => {
      const {color} = getComputedStyle(document.querySelector(selector));
      return Math.max(...color.match(/\\d+/g).slice(0, 3).map(Number)); }"""
    for selector in (".question-text", ".answer .prose p", ".source-title", ".answer th"):
        assert chat.page.evaluate(brightness, selector) < 90, selector


WEIGHTS = "The grade:\n\n| Part | Weight |\n| --- | ---: |\n| Labs | 40% |\n| **Exam** | 60% |"


def test_sources_are_printed_with_their_numbers_and_without_markdown(
    open_chat: OpenChat, tmp_path: Path
) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    text = "The exam weighs 60%."
    row = "| **Exam** | 60% |"
    start = WEIGHTS.index(row)
    matched = {"type": "citation", "n": 1, "passage": "p1", "start": 0, "end": len(text)}
    said = {**matched, "by": "match", "marks": [[start, start + len(row)]]}
    sources = [{**passage(1), "text": WEIGHTS}, passage(2)]
    peer.answer([*opening(*sources), *deltas(text), said, finish()])
    chat.ask("What does the exam weigh?")
    chat.wait_end()
    paper = " ".join(printed(chat.page, tmp_path))
    assert "The exam weighs 60%. [1]" in paper.replace("60%.[1]", "60%. [1]")
    assert re.search(r"\[1\]\s*Material 1", paper)
    assert "Labs" in paper
    assert "|" not in paper
    assert "**" not in paper
    # The same on the screen, where a card's text is there as soon as it is opened.
    chat.answer.locator(".source summary").first.click()
    card = chat.answer.locator(".source").first
    expect(card.locator("td")).to_have_text(["Labs", "40%", "Exam", "60%"])
    assert "".join(card.locator("mark").all_text_contents()) == "Exam60%"
    expect(chat.answer.locator(".source-text")).to_have_count(2)


def test_a_card_has_its_text_once_however_often_it_is_opened(open_chat: OpenChat) -> None:
    chat = open_chat(before=(peer := ScriptedPeer()).attach_to)
    finished(chat, peer)
    expect(chat.answer.locator(".source-text")).to_have_count(0)
    summary = chat.answer.locator(".source summary").first
    for _ in range(3):
        summary.click()
    chat.page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
    chat.page.evaluate("() => dispatchEvent(new Event('afterprint'))")
    expect(chat.answer.locator(".source-text")).to_have_count(4)
    expect(chat.answer.locator(".source").first.locator("mark")).to_have_count(1)


def test_paper_has_nothing_of_a_thumb(open_chat: OpenChat, tmp_path: Path) -> None:
    chat = open_chat(before=(peer := ScriptedPeer()).attach_to)
    finished(chat, peer)
    chat.answer.locator(".thumb[data-value=down]").click()
    note = chat.answer.locator(".feedback-note")
    expect(note).to_contain_text("Thank you.")
    note.locator("textarea").fill("Not for paper.")
    paper = " ".join(printed(chat.page, tmp_path))
    assert "When is the room open" in paper
    for unwanted in ("Thank you.", "Not for paper.", "Send"):
        assert unwanted not in paper, unwanted
    chat.page.emulate_media(media="print")
    expect(note).to_be_hidden()
