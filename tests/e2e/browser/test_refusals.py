"""A run that fails before it has accepted what opened it: told as a refusal is, and never again."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening
from tests.e2e.browser.test_lost_receipts import CUT, answered, keep_stored, press

OUTBOX = "sessionStorage.getItem('lectern.outbox')"


def reload_to(chat: ChatPage, peer: ScriptedPeer) -> None:
    """Reloads the page until its new connection has been welcomed, and has been heard since."""
    peer.received.clear()
    chat.page.reload()
    chat.page.wait_for_selector("html.is-ready")
    expect(chat.page.locator("#model-note")).to_contain_text("peer")


def ask_cut(chat: ChatPage, peer: ScriptedPeer) -> None:
    """An answer that can be gone on with."""
    peer.answer([*opening(), *deltas("One"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One", **CUT})


def test_a_question_that_is_refused_in_its_run_can_be_asked_again(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.refuse("internal", retryable=True, in_run=True)
    chat.ask("Question 1")
    expect(chat.answer.locator(".notice-red")).to_be_visible()
    expect(chat.answer).to_have_attribute("data-state", "error")
    assert chat.page.evaluate(OUTBOX) is None
    peer.answer(answered("One"))
    press("Retry")(chat)
    assert chat.wait_end() == "One"
    expect(chat.questions).to_have_text(["Question 1"])
    first, second = peer.sent("ask")
    assert (first["text"], first["id"] != second["id"]) == (second["text"], True)


@pytest.mark.parametrize("code", ["bad_request", "unauthorized"])
def test_a_question_that_is_refused_in_its_run_for_good_is_not_sent_again(
    chat: ChatPage, peer: ScriptedPeer, code: str
) -> None:
    peer.refuse(code, retryable=False, in_run=True)
    chat.ask("Question 1")
    expect(chat.answer.locator(".notice-red")).to_be_visible()
    reload_to(chat, peer)
    expect(chat.answer.locator(".notice-red")).to_be_visible()
    assert peer.sent("ask") == []
    peer.answer(answered("Two"))
    chat.ask("Question 2")
    assert chat.wait_end() == "Two"


def test_a_question_that_its_run_finds_too_long_returns_to_the_box(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.refuse("prompt_too_long", retryable=False, in_run=True)
    chat.ask("Question 1")
    expect(chat.answer.locator(".notice-red")).to_be_visible()
    expect(chat.question).to_have_value("Question 1")


@pytest.mark.parametrize(
    ("code", "retryable"), [("bad_request", False), ("conversation_busy", True), ("internal", True)]
)
def test_a_continuation_that_is_refused_in_its_run_leaves_the_answer_as_it_was(
    chat: ChatPage, peer: ScriptedPeer, code: str, retryable: bool
) -> None:
    ask_cut(chat, peer)
    peer.refuse(code, retryable=retryable, in_run=True)
    press("Continue")(chat)
    expect(chat.page.locator("#problem")).to_be_visible()
    assert chat.wait_end() == "One"
    expect(chat.answer.locator(".seam")).to_have_count(0)
    reload_to(chat, peer)
    assert chat.wait_end() == "One"
    assert peer.sent("continue") == []
    peer.answer([{**opening()[-1], "continued": True}, *deltas(" and two."), finish()])
    press("Continue")(chat)
    assert chat.wait_end() == "One and two."


def test_a_continuation_whose_run_was_followed_before_it_was_refused(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    """The page was reloaded while the run was opening: the history names the run already."""
    ask_cut(chat, peer)
    peer.ignore()
    press("Continue")(chat)
    chat.page.wait_for_function(f"() => {OUTBOX} !== null")
    keep_stored(chat.page, {"text": "One", **CUT}, active_run="refused")
    reload_to(chat, peer)
    expect(chat.answer).to_have_attribute("data-state", "running")
    [message] = peer.sent("continue")
    keep_stored(chat.page, {"text": "One", **CUT})
    refusal = {"type": "error", "code": "bad_request", "message": "", "retryable": False}
    peer.tell({**refusal, "run": "refused", "seq": 1, "id": message["id"]})
    expect(chat.page.locator("#problem")).to_be_visible()
    assert chat.wait_end() == "One"
    assert chat.page.evaluate(OUTBOX) is None


def test_a_refusal_on_another_device_is_no_end_of_the_answer_here(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    """What the history names as running may fail before it has written anything."""
    ask_cut(chat, peer)
    keep_stored(chat.page, {"text": "One", **CUT}, active_run="refused")
    reload_to(chat, peer)
    expect(chat.answer).to_have_attribute("data-state", "running")
    keep_stored(chat.page, {"text": "One", **CUT})
    refusal = {"type": "error", "code": "internal", "message": "", "retryable": True}
    peer.tell({**refusal, "run": "refused", "seq": 1, "id": "of another device"})
    assert chat.wait_end() == "One"
    expect(chat.answer.locator(".notice-red")).to_have_count(0)
    expect(chat.answer.get_by_role("button", name="Continue", exact=True)).to_be_enabled()
