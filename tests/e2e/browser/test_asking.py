"""Asking: the answer grows, says how it ended, can be stopped and continued, and is kept."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.e2e.browser.chat_page import QUESTION
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer

LONG_QUESTION = f"{QUESTION} " + " ".join(f"word{n}" for n in range(90))
"""Its answer needs about 220 tokens, so that 80 cut it twice."""

WATCH_GROWTH = """() => {
  window.lengths = [];
  new MutationObserver(() => {
    const answer = document.querySelector('.answer[data-state=running] .prose');
    if (answer) window.lengths.push(answer.textContent.trim().length);
  }).observe(document.querySelector('#messages'), {
    subtree: true, childList: true, characterData: true,
  });
}"""


def test_an_answer_grows_and_says_how_it_ended(open_chat: OpenChat) -> None:
    chat = open_chat()
    expect(chat.page.locator("#model-note")).to_contain_text("scripted")
    question = f"{QUESTION} And where, and who is there to help me with lab four? {QUESTION}"
    question = f"{question} {question}"
    chat.page.evaluate(WATCH_GROWTH)
    chat.ask(question)
    assert chat.wait_end() == question
    lengths = chat.page.evaluate("() => window.lengths")
    assert len(set(lengths)) >= 5, "the text did not grow"
    assert lengths == sorted(lengths)
    expect(chat.answer.locator(".finish")).to_have_text("Complete")
    expect(chat.answer.locator(".notice")).to_have_count(0)
    expect(chat.status).to_have_text("Complete")
    expect(chat.page).to_have_url(re.compile(r"/c/\w+$"))
    expect(chat.page.locator(".conversation[aria-current=page]")).to_contain_text(QUESTION)
    chat.answer.locator(".details-toggle").click()
    rows = chat.answer.locator(".details-rows")
    for name in ("Read", "Written", "Time to first token", "Speed", "In all"):
        expect(rows).to_contain_text(name)
    expect(rows).to_contain_text("from the cache")
    expect(chat.answer.locator(".meter-legend")).to_contain_text("Passages")


def test_the_sources_stand_below_and_open_in_their_material(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask()
    chat.wait_end()
    first = chat.answer.locator(".source").first
    expect(first.locator(".source-n")).to_have_text("1")
    first.locator("summary").click()
    passage = first.locator(".source-text").text_content() or ""
    first.get_by_role("button").click()
    panel = chat.page.locator("#source-panel")
    expect(panel).to_be_visible()
    expect(panel.locator(".passage-mark")).to_be_in_viewport()
    # The whole material is there, not the passage alone.
    chat.page.wait_for_function(
        "(n) => document.querySelector('.panel-body').textContent.length > n", arg=len(passage)
    )
    chat.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def test_a_suggested_question_is_asked_by_a_click(open_chat: OpenChat) -> None:
    chat = open_chat()
    suggestion = chat.page.locator(".suggestion").first
    text = suggestion.text_content() or ""
    suggestion.click()
    chat.wait_end()
    expect(chat.questions).to_have_text([text])


def test_stop_keeps_what_was_written(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask(LONG_QUESTION)
    chat.wait_text(24)
    chat.page.get_by_role("button", name="Stop the answer").click()
    text = chat.wait_end("stopped")
    assert 24 <= len(text) < len(LONG_QUESTION) / 2
    assert (LONG_QUESTION).startswith(text)
    expect(chat.answer.locator(".finish")).to_have_text("You stopped this answer")
    chat.page.reload()
    assert chat.wait_end("stopped") == text
    expect(chat.answer.locator(".finish")).to_have_text("You stopped this answer")
    expect(chat.questions).to_have_text([LONG_QUESTION])


def test_a_cut_answer_says_so_and_continues(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask(LONG_QUESTION)
    cut = chat.wait_end()
    whole = LONG_QUESTION
    assert whole.startswith(cut)
    assert len(cut) < len(whole)
    notice = chat.answer.locator(".notice-amber")
    expect(notice).to_contain_text("length limit of 80 tokens")
    notice.get_by_role("button", name="Continue", exact=True).click()
    chat.wait_text(len(cut) + 8)
    longer = chat.wait_end()
    assert longer.startswith(cut)
    assert whole.startswith(longer)
    assert len(longer) > len(cut)
    expect(chat.answers).to_have_count(1)
    expect(chat.answer.locator(".seam")).to_have_count(1)
    notice.get_by_role("button", name="Continue", exact=True).click()
    chat.wait_text(len(longer) + 8)
    assert chat.wait_end() == whole
    expect(chat.answer.locator(".seam")).to_have_count(2)
    counted = chat.answer.locator(".details-brief").inner_text()
    chat.page.reload()
    assert chat.wait_end() == whole
    expect(chat.answer.locator(".seam")).to_have_count(2)
    # All parts together, while it streamed as after a reload.
    assert "tokens" in counted
    expect(chat.answer.locator(".details-brief")).to_have_text(counted)


def test_a_continuation_is_undone_and_written_again(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask(LONG_QUESTION)
    cut = chat.wait_end()
    tail = chat.answer.locator(".answer-tail")
    again = tail.get_by_role("button", name="Continue", exact=True)
    again.click()
    chat.wait_text(len(cut) + 8)
    longer = chat.wait_end()
    tail.get_by_role("button", name="Undo the continuation").click()
    expect(chat.answer.locator(".seam")).to_have_count(0)
    assert chat.text == cut
    expect(chat.answer.locator(".notice-amber")).to_contain_text("length limit of 80 tokens")
    chat.page.reload()
    assert chat.wait_end() == cut
    again.click()
    chat.wait_text(len(cut) + 8)
    assert chat.wait_end() == longer


def test_without_its_limit_a_cut_answer_comes_to_its_end(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask(LONG_QUESTION)
    cut = chat.wait_end()
    chat.answer.get_by_role("button", name="Continue without this limit").click()
    chat.wait_text(len(cut) + 8)
    assert chat.wait_end() == LONG_QUESTION
    expect(chat.answer.locator(".finish")).to_have_text("Complete")
    expect(chat.answer.locator(".notice", has_text="cut")).to_have_count(0)


def test_a_thumb_is_kept_and_the_record_can_be_printed(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask()
    text = chat.wait_end()
    chat.answer.get_by_role("button", name="This answer helped").click()
    expect(chat.answer.locator(".feedback-note")).to_contain_text("Thank you")
    chat.page.reload()
    chat.wait_end()
    up = chat.answer.get_by_role("button", name="This answer helped")
    expect(up).to_have_attribute("aria-pressed", "true")
    chat.answer.get_by_role("button", name="Details").click()
    with chat.page.context.expect_page() as opened:
        chat.answer.get_by_role("link", name="Print view").click()
    expect(opened.value.locator("body")).to_contain_text(text)


def test_what_is_not_in_the_materials_is_said_plainly(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask("Zebra xylophone volcano?")
    text = chat.wait_end()
    assert text.startswith("Not found in the course materials")
    words = "Not found: no passage fits this question well enough"
    expect(chat.answer.locator(".finish")).to_have_text(words)


def test_the_next_question_follows_in_the_same_conversation(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask()
    chat.wait_end()
    address = chat.page.url
    chat.ask("What may I bring to the exam?")
    chat.wait_end()
    assert chat.page.url == address
    expect(chat.questions).to_have_count(2)
    chat.page.get_by_role("link", name="New conversation").first.click()
    expect(chat.questions).to_have_count(0)
    expect(chat.page.locator(".welcome")).to_be_visible()
    chat.page.go_back()
    expect(chat.questions).to_have_count(2)


def test_the_fallback_model_is_named_as_such(open_chat: OpenChat) -> None:
    peer = ScriptedPeer(is_fallback=True)
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("small fallback model")
