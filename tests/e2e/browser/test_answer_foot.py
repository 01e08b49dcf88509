"""What stands below an answer: its details, its sources, and what a reader can do with it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import (
    TIMING,
    USAGE,
    ScriptedPeer,
    deltas,
    finish,
    opening,
    passage,
)

TEXT = "Some text."


def test_the_drawer_tells_what_the_answer_cost(chat: ChatPage, peer: ScriptedPeer) -> None:
    usage = {
        **USAGE,
        "cost": {"amount": 0.000213, "currency": "USD"},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    timing = {**TIMING, "queue_ms": 1500.0, "thinking_ms": 2100.0}
    end = {**finish(), "usage": usage, "timing": timing, "window_used": 1027}
    peer.answer([*opening(passage(1)), *deltas(TEXT), end])
    chat.ask("What?")
    chat.wait_end()
    drawer = chat.answer.locator(".details")
    expect(drawer).to_be_hidden()
    toggle = chat.answer.get_by_role("button", name="Details")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    toggle.click()
    rows = drawer.locator(".details-rows > div").evaluate_all(
        "rows => Object.fromEntries(rows.map((row) => [...row.children].map((c) => c.textContent)))"
    )
    assert rows == {
        "Model": "peer",
        "Read": "1,020 tokens, 256 from the cache",
        "Written": "7 of at most 512 tokens",
        "Of this, thinking": "3 tokens · 2.1 s",
        "Passages left out": "none",
        "Window used": "1,027 of 4,096 tokens",
        "Waited in line": "1.5 s",
        "Time to first token": "120 ms",
        "Speed": "40 tokens/s",
        "In all": "900 ms",
        "Cost": "$0.00021",
        "Finish reason": "stop · eos",
    }
    legend = drawer.locator(".meter-legend li")
    expect(legend).to_have_text(
        ["Instructions 100", "Passages 900", "Question 20", "Answer 7", "Free 3,069"]
    )
    link = drawer.get_by_role("link", name="Print view")
    expect(link).to_have_attribute("href", "/records/a1")


def test_thanks_are_said_when_the_server_has_stored_it(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(passage(1)), *deltas(TEXT), finish()])
    chat.ask("What?")
    chat.wait_end()
    up = chat.answer.get_by_role("button", name="This answer helped")
    note = chat.answer.locator(".feedback-note")
    peer.feedback_reply = {"type": "error", "code": "internal", "message": "", "retryable": True}
    up.click()
    expect(note).to_have_text("Could not be sent. Try again.")
    expect(up).to_have_attribute("aria-pressed", "false")
    peer.feedback_reply = None
    up.click()
    expect(up).to_have_attribute("aria-pressed", "true")
    expect(note).not_to_contain_text("Thank you")
    told = peer.sent("feedback")[-1]
    assert (told["message"], told["value"]) == ("a1", "up")
    peer.tell({"type": "done", "id": told["id"]})
    expect(note).to_have_text(
        "Thank you. Your teacher sees this beside the question and the answer, with your note if "
        "you write one. The answer stays as it is; press the thumb again to take this back."
    )


@pytest.mark.parametrize(
    ("locale", "does", "reads"),
    [
        ("en", ": tell your teacher", "Your teacher reads this"),
        ("zh-CN", "：告诉老师", "老师会看到你写的内容"),
    ],
)
def test_a_thumb_says_what_it_does_and_who_reads_it(
    open_chat: OpenChat, peer: ScriptedPeer, locale: str, does: str, reads: str
) -> None:
    chat = open_chat(before=peer.attach_to, locale=locale)
    peer.answer([*opening(passage(1)), *deltas(TEXT), finish()])
    chat.ask("What?")
    chat.wait_end()
    thumbs = chat.answer.locator(".thumb")
    for thumb in thumbs.all():
        for attribute in ("title", "aria-label"):
            expect(thumb).to_have_attribute(attribute, re.compile(f"{does}$"))
    thumbs.last.click()
    expect(chat.answer.get_by_role("textbox")).to_have_attribute("placeholder", re.compile(reads))
    # What is taken back is told to nobody.
    thumbs.last.click()
    expect(thumbs.last).to_have_attribute("aria-pressed", "false")
    assert [told["value"] for told in peer.sent("feedback")] == ["down", "none"]


def test_a_thumb_down_asks_why(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(passage(1)), *deltas(TEXT), finish()])
    chat.ask("What?")
    chat.wait_end()
    down = chat.answer.get_by_role("button", name="This answer did not help")
    down.click()
    why = chat.answer.get_by_role("textbox")
    expect(why).to_be_focused()
    why.fill("Wrong room.")
    chat.answer.get_by_role("button", name="Send").click()
    expect(why).to_have_count(0)
    expect(chat.answer.locator(".feedback-note")).to_contain_text("Thank you")
    expect(down).to_be_focused()
    assert peer.sent("feedback")[-1]["note"] == "Wrong room."


def test_a_finished_answer_can_be_made_again(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(), *deltas("First."), finish()])
    chat.ask("What?")
    chat.wait_end()
    peer.answer([*opening(), *deltas("Second."), finish()])
    chat.answer.get_by_role("button", name="Regenerate").focus()
    chat.page.keyboard.press("Enter")
    expect(chat.answer.locator(".prose")).to_have_text("Second.")
    expect(chat.answer).to_be_focused()
    assert peer.sent("regenerate")[-1]["message"] == "a1"
    expect(chat.answer.get_by_role("button", name="Regenerate")).to_have_count(1)


def test_a_failed_answer_can_be_made_again(chat: ChatPage, peer: ScriptedPeer) -> None:
    error = {"type": "error", "code": "internal", "message": "", "retryable": True}
    peer.answer([*opening(passage(1)), *deltas("Half"), error])
    chat.ask("What?")
    expect(chat.answer.locator(".prose")).to_have_text("Half")
    peer.answer([*opening(), *deltas("Whole."), finish()])
    chat.answer.get_by_role("button", name="Retry").click()
    expect(chat.answer.locator(".prose")).to_have_text("Whole.")
    expect(chat.answers).to_have_count(1)
    assert peer.sent("regenerate")[-1]["message"] == "a1"


def test_a_refused_question_can_be_asked_again(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.refuse("queue_full", retryable=True)
    chat.ask("What?")
    expect(chat.answer.locator(".notice-red")).to_contain_text("Too many people")
    peer.answer([*opening(), *deltas("This."), finish()])
    chat.answer.get_by_role("button", name="Retry").click()
    expect(chat.answer.locator(".prose")).to_have_text("This.")
    expect(chat.questions).to_have_text(["What?"])
    expect(chat.answers).to_have_count(1)
    first, second = peer.sent("ask")
    assert first["text"] == second["text"]
    assert first["id"] != second["id"]


def test_what_has_to_wait_for_another_answer_says_so(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(), *deltas(TEXT), finish("max_tokens", can_continue=True)])
    chat.ask("First?")
    chat.wait_end()
    first = chat.answers.first
    peer.answer([*opening(), *deltas("Half")])
    chat.ask("Second?")
    chat.wait_text(4)
    first.get_by_role("button", name="Continue", exact=True).click()
    expect(first.locator(".foot-note")).to_contain_text("Another answer is being written")
    assert peer.sent("continue") == []


def test_passages_left_out_are_listed(chat: ChatPage, peer: ScriptedPeer) -> None:
    found = [passage(1), passage(2), passage(3, used=False)]
    peer.answer([*opening(*found), *deltas("As [1] says, and [3]."), finish()])
    chat.ask("What?")
    summary = chat.answer.locator(".left-out summary").first
    expect(summary).to_have_text("2 of 3 found passages used")
    summary.click()
    expect(chat.answer.locator(".left-out")).to_contain_text("Material 3")
    # What the model did not read cannot be what it cites.
    expect(chat.answer.locator(".cite")).to_have_text(["1"])
    chat.answer.locator(".cite").click()
    expect(chat.page.locator("#source-panel")).to_contain_text("Text of passage 1.")


def test_the_nearest_passages_stand_below_a_not_found(chat: ChatPage, peer: ScriptedPeer) -> None:
    found = [passage(1, used=False), passage(2, used=False)]
    peer.answer([*opening(*found, not_found=True), *deltas("Not found."), finish("not_found")])
    chat.ask("What?")
    expect(chat.answer.locator(".sources-title")).to_have_text("Nearest passages")
    expect(chat.answer.locator(".source")).to_have_count(2)
    words = "Not found: no passage fits this question well enough"
    expect(chat.answer.locator(".finish")).to_have_text(words)


@pytest.mark.parametrize(
    ("locale", "words"), [("en", "Passages left outnone"), ("zh-CN", "未采用的段落无")]
)
def test_the_drawer_says_that_nothing_was_left_out(
    open_chat: OpenChat, peer: ScriptedPeer, locale: str, words: str
) -> None:
    chat = open_chat(before=peer.attach_to, locale=locale)
    rows = chat.answer.locator(".details-rows")
    for passages, is_told in (
        ([passage(1), passage(2)], True),
        ([passage(1), passage(2, used=False)], False),
        ([], False),
    ):
        peer.answer([*opening(*passages), *deltas("Yes [1]."), finish()])
        chat.ask("Is it so?")
        chat.wait_end()
        chat.answer.locator(".details-toggle").click()
        expect(rows.locator("div", has_text=words)).to_have_count(int(is_told))


@pytest.mark.parametrize(
    ("locale", "words"),
    [
        ("en", "Earlier questions1 read · 2 did not fit · 3 without an answer, not read"),
        ("zh-CN", "先前的问题已读 1 个 · 放不下 2 个 · 未获回答而未读 3 个"),
    ],
)
def test_the_drawer_says_what_became_of_earlier_questions(
    open_chat: OpenChat, peer: ScriptedPeer, locale: str, words: str
) -> None:
    chat = open_chat(before=peer.attach_to, locale=locale)
    opened = opening(passage(1), turns_kept=1, turns_dropped=2, turns_skipped=3)
    peer.answer([*opened, *deltas("Yes [1]."), finish()])
    chat.ask("Is it so?")
    chat.wait_end()
    chat.answer.locator(".details-toggle").click()
    rows = chat.answer.locator(".details-rows > div")
    expect(rows.filter(has_text=words)).to_have_count(1)


def test_where_no_model_was_asked_nothing_fills_its_window(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    found = [passage(1, used=False)]
    peer.answer([*opening(*found, not_found=True), *deltas("Not found."), finish("not_found")])
    chat.ask("What?")
    chat.wait_end()
    chat.answer.locator(".details-toggle").click()
    expect(chat.answer.locator(".details-rows")).to_be_visible()
    expect(chat.answer.locator(".meter")).to_have_count(0)


def test_a_long_source_says_that_it_is_cut_and_shows_all(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    long = {**passage(1), "text": "A line of it.\n\n" * 60 + "The very end."}
    peer.answer([*opening(long, passage(2)), *deltas("Yes [1]."), finish()])
    chat.ask("Is it so?")
    chat.wait_end()
    cards = chat.answer.locator(".source")
    for card in cards.all():
        card.locator("summary").click()
    show_all = chat.answer.get_by_role("button", name="Show all")
    expect(show_all).to_have_count(1)
    text = cards.first.locator(".source-text")
    masked = "(node) => getComputedStyle(node).maskImage !== 'none'"
    assert text.evaluate(masked)
    show_all.focus()
    show_all.press("Enter")
    expect(show_all).to_have_count(0)
    expect(text).to_be_focused()
    assert not text.evaluate(masked)
    assert text.evaluate("(node) => node.scrollHeight <= node.clientHeight + 1")
