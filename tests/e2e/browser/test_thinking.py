"""Thinking before the answer: shown as what it is, folded, and never as the answer."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.scripted_peer import (
    CONTEXT,
    TIMING,
    USAGE,
    Event,
    ScriptedPeer,
    deltas,
    finish,
    opening,
)
from tests.e2e.browser.thinking_server import SUMMARY
from tests.e2e.browser.thinking_server import THOUGHT as LONG_THOUGHT
from tests.support.server_process import ServerProcess

THOUGHT = "The **first** passage says so:\n\n```\nsee [1]\n"
"""Half of it is markup that would swallow what follows."""


def thoughts(text: str, num_chars: int = 4) -> list[Event]:
    return [
        {"type": "thinking", "text": text[at : at + num_chars]}
        for at in range(0, len(text), num_chars)
    ]


def cut_thinking(kind: str) -> Event:
    """An end before the first word of the answer."""
    return {**finish(kind), "finish_detail": {"type": kind, "in": "reasoning"}}


def thought_through(limit: int = 512) -> Event:
    """The end of an answer that came to no first word."""
    usage = {
        **USAGE,
        "completion_tokens": limit,
        "total_tokens": 1020 + limit,
        "completion_tokens_details": {"reasoning_tokens": limit},
    }
    end = {**cut_thinking("max_tokens"), "can_continue": True}
    return {**end, "usage": usage, "timing": {**TIMING, "thinking_ms": 12_400.0}}


def summary(chat: ChatPage) -> Locator:
    return chat.answer.locator(".thinking summary")


def test_thinking_is_folded_plain_and_no_part_of_the_answer(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    chat.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    peer.answer([*opening(), *thoughts(THOUGHT)])
    chat.ask("What?")
    expect(summary(chat)).to_contain_text("Thinking…")
    expect(chat.status).to_have_text("Thinking…")
    box = chat.answer.locator(".thinking-text")
    expect(box).to_be_hidden()
    expect(chat.answer.locator(".prose")).to_be_empty()
    summary(chat).click()
    expect(box).to_be_visible()
    assert box.evaluate("(box) => box.textContent") == THOUGHT
    # What grows is one text: nothing is made anew while it streams.
    box.evaluate("(box) => (box.firstChild.wasHere = true)")
    peer.send(*thoughts("And more."))
    expect(box).to_contain_text("And more.")
    assert box.evaluate("(box) => [box.childNodes.length, box.firstChild.wasHere]") == [1, True]
    usage = {**USAGE, "completion_tokens_details": {"reasoning_tokens": 310}}
    timing = {**TIMING, "thinking_ms": 12_400.0}
    peer.send(*deltas("The answer."), {**finish(), "usage": usage, "timing": timing})
    assert chat.wait_end() == "The answer."
    expect(summary(chat)).to_have_text("Thought for 12 s · 310 tokens")
    expect(box).to_be_visible()
    chat.answer.get_by_role("button", name="Copy").click()
    expect(chat.answer.locator(".copy-answer")).to_have_text("Copied")
    assert chat.page.evaluate("navigator.clipboard.readText()") == "The answer."


def test_thinking_that_took_the_whole_limit_says_so(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(), *thoughts(THOUGHT), thought_through()])
    chat.ask("What?")
    chat.wait_end()
    words = "The whole limit of 512 tokens went into thinking; no answer was begun."
    notice = chat.answer.locator(".notice-amber")
    expect(notice.locator(".notice-text")).to_have_text(words)
    expect(chat.status).to_have_text(words)
    expect(summary(chat)).to_have_text("Thought for 12 s, and came to no answer · 512 tokens")
    expect(notice.get_by_role("button")).to_have_text(["Continue without this limit", "Continue"])
    start = {**opening()[2], "continued": True}
    peer.answer([start, *thoughts(" So it is."), *deltas("At eight."), finish()])
    notice.get_by_role("button", name="Continue without this limit").click()
    expect(chat.answer.locator(".prose")).to_have_text("At eight.")
    assert peer.sent("continue")[-1]["options"] == {"max_tokens": CONTEXT["window"]}
    expect(summary(chat)).to_contain_text("Thought for")
    expect(chat.answer.locator(".thinking-text")).to_have_text(f"{THOUGHT} So it is.".strip())


@pytest.mark.parametrize(
    ("end", "state", "words"),
    [
        (cut_thinking("deadline"), "interrupted", "took longer than the time"),
        (cut_thinking("context_window"), "finished", "tokens is full"),
    ],
    ids=["deadline", "window"],
)
def test_an_end_while_thinking_says_that_nothing_was_answered(
    chat: ChatPage, peer: ScriptedPeer, end: Event, state: str, words: str
) -> None:
    peer.answer([*opening(), *thoughts(THOUGHT), end])
    chat.ask("What?")
    chat.wait_end(state)
    notice = chat.answer.locator(".notice-amber")
    expect(notice).to_contain_text(words)
    expect(notice).to_contain_text("It was still thinking; no answer was begun.")


def test_thinking_comes_back_with_a_reload(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(), *thoughts(THOUGHT), *deltas("Yes."), finish()])
    chat.ask("What?")
    chat.wait_end()
    answer = {
        "id": "a1",
        "parent": "q1",
        "role": "assistant",
        "text": "Yes.",
        "thinking": THOUGHT,
        "state": "finished",
        "finish_reason": "stop",
        "finish_detail": {"type": "eos"},
        "usage": {**USAGE, "completion_tokens_details": {"reasoning_tokens": 5}},
        "timing": {**TIMING, "thinking_ms": 61_000.0},
    }
    question = {"id": "q1", "parent": None, "role": "user", "text": "What?", "state": "finished"}
    stored = {"id": "c1", "course": None, "active_run": None, "messages": [question, answer]}
    chat.page.route("**/api/conversations/c1*", lambda route: route.fulfill(json=stored))
    chat.page.reload()
    assert chat.wait_end() == "Yes."
    expect(summary(chat)).to_have_text("Thought for 1 min 1 s · 5 tokens")
    expect(chat.answer.locator(".thinking-text")).to_be_hidden()


def test_from_a_spent_limit_to_a_full_window_and_on_in_a_summary(
    browser: Browser, tmp_path: Path
) -> None:
    """On the real server, by what the page offers at each end."""
    options = "--scripted --scripted-token-s 0.002 --default-max-tokens 60 --max-model-len 2048"
    module = "tests.e2e.browser.thinking_server"
    with (
        ServerProcess(tmp_path, *options.split(), module=module) as server,
        closing(browser.new_context(base_url=server.address)) as context,
    ):
        page = context.new_page()
        page.goto("/")
        page.wait_for_selector("html.is-ready")
        chat = ChatPage(page)
        chat.ask()
        assert chat.wait_end() == ""
        notice = chat.answer.locator(".notice-amber").first
        expect(notice).to_contain_text("whole limit of 60 tokens went into thinking")
        notice.get_by_role("button", name="Continue without this limit").click()
        chat.wait_text(200)
        text = chat.wait_end()
        assert text.startswith("hour0 hour1 ")
        expect(chat.answer.locator(".thinking-text")).to_have_text(LONG_THOUGHT.strip())
        expect(notice).to_contain_text("window of 2,048 tokens is full")
        notice.get_by_role("button", name="New conversation with a summary").click()
        expect(chat.answer.get_by_role("heading", name="Summary")).to_be_visible()
        expect(chat.answer.locator(".prose")).to_have_text(SUMMARY)
        expect(chat.questions).to_have_count(0)
        chat.ask("And the short version of office hours?")
        assert chat.wait_end() == "Short."
        page.reload()
        assert chat.wait_end() == "Short."
        expect(chat.answers.first).to_contain_text(SUMMARY)
