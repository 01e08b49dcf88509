"""Continuing a cut answer: the same limit again, without it, undone, or in a new conversation."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import (
    CONTEXT,
    TIMING,
    USAGE,
    Event,
    ScriptedPeer,
    deltas,
    finish,
    opening,
    passage,
)

FIRST = "The office hours are on Tuesday from two to"
MORE = " four in room seven, and on Friday from nine to"
LAST = " ten in the library."
CUT = finish("max_tokens", can_continue=True)
WHOLE = finish()
START: Event = {**opening()[2], "continued": True}


@pytest.fixture
def chat(open_chat: OpenChat, peer: ScriptedPeer) -> ChatPage:
    """A page with a cut answer."""
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(passage(1)), *deltas(FIRST), CUT])
    chat.ask("When are office hours?")
    chat.wait_end()
    return chat


def button(chat: ChatPage, name: str) -> Locator:
    return chat.answer.locator(".answer-tail").get_by_role("button", name=name, exact=True)


def continue_with(chat: ChatPage, peer: ScriptedPeer, text: str, end: Event) -> None:
    whole = chat.text + text
    peer.answer([START, *deltas(text), {**end, "can_undo": True}])
    button(chat, "Continue").click()
    expect(chat.answer.locator(".prose")).to_have_text(whole)
    chat.wait_end()


def stored(text: str, **fields: Any) -> Event:
    """An answer as the API tells it."""
    return {
        "id": "a1",
        "parent": "q1",
        "role": "assistant",
        "text": text,
        "state": "finished",
        "max_tokens": 512,
        "finish_reason": "length",
        "finish_detail": {"type": "max_tokens"},
        "usage": USAGE,
        "timing": TIMING,
        "context": CONTEXT,
        "can_continue": True,
        "seams": [],
        **fields,
    }


def test_without_the_limit_all_that_the_window_holds_is_asked_for(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    expect(button(chat, "Continue")).to_be_visible()
    peer.answer([{**START, "max_tokens": 3069}, *deltas(MORE + LAST), finish()])
    button(chat, "Continue without this limit").click()
    expect(chat.answer.locator(".prose")).to_have_text(FIRST + MORE + LAST)
    told = peer.sent("continue")[-1]
    # More than there is room for: so the window ends it, if anything does.
    assert (told["message"], told["options"]) == ("a1", {"max_tokens": CONTEXT["window"]})
    expect(chat.answer.locator(".finish")).to_have_text("Complete")
    expect(chat.answer.locator(".seam")).to_have_count(1)
    expect(chat.answers).to_have_count(1)


def test_continue_asks_for_the_same_limit_again_and_searches_nothing(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer([])
    button(chat, "Continue").click()
    expect(chat.status).to_have_text("Reading 1 passage…")
    # Where the reader is: below the text, which stays.
    assert chat.text == FIRST
    phase = chat.answer.locator(".prose ~ .answer-below .waiting .phase")
    expect(phase).to_contain_text("Reading 1 passage…")
    expect(chat.answer.locator(".steps li")).to_have_text(["Send", "Queue", "Read", "Write"])
    assert "options" not in peer.sent("continue")[-1]


def test_the_focus_stays_at_the_answer_whose_button_went(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer([START, *deltas(MORE)])
    button(chat, "Continue").focus()
    chat.page.keyboard.press("Enter")
    expect(button(chat, "Continue")).to_have_count(0)
    expect(chat.answer).to_be_focused()
    peer.send(CUT)
    expect(button(chat, "Continue")).to_be_visible()
    expect(chat.answer).to_be_focused()


def test_the_drawer_tells_each_part_and_its_limit(chat: ChatPage, peer: ScriptedPeer) -> None:
    counts = ((512, 512), (388, 3069))
    parts = [{**USAGE, "completion_tokens": count, "max_tokens": most} for count, most in counts]
    usage = {**USAGE, "completion_tokens": 900, "total_tokens": 1920, "parts": parts}
    continue_with(chat, peer, MORE, {**CUT, "usage": usage})
    button(chat, "Details · 900 tokens · 40 tokens/s").click()
    rows = chat.answer.locator(".details-rows")
    expect(rows).to_contain_text("900 tokens in parts: 512 of 512 + 388 of 3,069")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_last_seam_can_be_undone_where_it_is(
    chat: ChatPage, peer: ScriptedPeer, width: int
) -> None:
    chat.page.set_viewport_size({"width": width, "height": 800})
    continue_with(chat, peer, MORE, CUT)
    continue_with(chat, peer, LAST, WHOLE)
    seams = chat.answer.locator(".seam")
    expect(seams).to_have_count(2)
    note = chat.answer.locator(".seam-note")
    seams.first.click()
    expect(note).to_contain_text("Only the last continuation can be undone.")
    expect(note.get_by_role("button")).to_have_count(0)
    chat.page.keyboard.press("Escape")
    expect(note).to_be_hidden()
    seams.last.click()
    undo = note.get_by_role("button", name="Undo the continuation")
    expect(undo).to_be_focused()
    expect(undo).to_be_in_viewport()
    undo.click()
    expect(note).to_be_hidden()
    expect(button(chat, "Undo the continuation")).to_be_disabled()
    told = peer.sent("undo")
    assert [message["message"] for message in told] == ["a1"]
    before = stored(FIRST + MORE, seams=[len(FIRST)], can_undo=True)
    peer.tell({"type": "done", "id": told[0]["id"], "message": before})
    expect(chat.answer.locator(".prose")).to_have_text(FIRST + MORE)
    expect(seams).to_have_count(1)
    expect(chat.answer.locator(".notice-amber")).to_contain_text("limit of 512 tokens")
    # What was undone can be written again.
    continue_with(chat, peer, LAST, WHOLE)
    expect(seams).to_have_count(2)


def test_an_undo_below_the_answer_keeps_the_focus(chat: ChatPage, peer: ScriptedPeer) -> None:
    continue_with(chat, peer, MORE, WHOLE)
    undo = button(chat, "Undo the continuation")
    undo.focus()
    chat.page.keyboard.press("Enter")
    expect(undo).to_be_disabled()
    expect(chat.answer).to_be_focused()
    told = peer.sent("undo")[0]
    peer.tell({"type": "done", "id": told["id"], "message": stored(FIRST)})
    expect(chat.answer.locator(".prose")).to_have_text(FIRST)
    expect(undo).to_have_count(0)
    expect(chat.answer).to_be_focused()


def test_a_full_window_leads_to_a_new_conversation_with_a_summary(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas(FIRST), finish("context_window")])
    chat.ask("When are office hours?")
    chat.wait_end()
    peer.answer([])
    button(chat, "New conversation with a summary").click()
    expect(chat.status).to_have_text("Reading the earlier conversation…")
    expect(chat.answer.locator(".steps li")).to_have_text(["Send", "Queue", "Read", "Write"])
    extract = {**finish("extract"), "finish_reason": "stop"}
    peer.send({**START, "continued": False}, *deltas("They spoke of office hours."), extract)
    expect(chat.page).to_have_url(re.compile("/c/c2$"))
    expect(chat.questions).to_have_count(0)
    expect(chat.answers).to_have_count(1)
    heading = chat.answer.get_by_role("heading", name="Summary of the earlier conversation")
    expect(heading).to_be_visible()
    expect(chat.answer.locator(".prose")).to_have_text("They spoke of office hours.")
    expect(chat.answer.locator(".finish-quiet")).to_contain_text("without the model")
    assert peer.sent("carry")[-1]["message"] == "a1"
    chat.ask("And on Friday?")
    expect(chat.questions).to_have_text(["And on Friday?"])
    assert peer.sent("ask")[-1]["conversation"] == "c2"
