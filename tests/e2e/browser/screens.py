"""`STATES`: how to get the chat page into each state that it has, for checks and for pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from tests.e2e.browser.chat_page import HAS_ENDED, ChatPage
from tests.e2e.browser.scripted_peer import Event, ScriptedPeer, deltas, finish, opening, passage

State = Callable[[ChatPage, ScriptedPeer], None]
"""Leads a fresh page, whose events the peer sends, to a state, and returns when it is there."""

SENTENCE = "The door opens at eight."
SOURCE = f"# Rooms\n\n{SENTENCE} It closes at nine. Bring a card: without one nobody gets in."
TEXT = """The room is open from eight to nine [1].

| day | from | to |
| --- | ---: | ---: |
| Monday | 8 | 9 |

1. Bring a **card**.
2. Read `notes.py`, or <https://example.org/rooms>.

```python
def is_open(hour: int) -> bool:
    return 8 <= hour < 9  # see the notice [1]
```

> “Nobody gets in without one.” See also [2].
"""
QUESTION = "When is the room open, and what must I bring?"
ERRORS = ("queue_full", "prompt_too_long", "internal")


def sources() -> list[Event]:
    """Three used ones, one that was left out."""
    first = {**passage(1), "title": "Rooms and hours", "text": SOURCE, "place": {"page": 4}}
    return [first, passage(2), passage(3), passage(4, used=False)]


def citation() -> Event:
    start = SOURCE.index(SENTENCE)
    said = {"type": "citation", "n": 1, "passage": "p1", "start": 0, "end": 36, "by": "model"}
    return {**said, "marks": [[start, start + len(SENTENCE)]]}


def empty(chat: ChatPage, peer: ScriptedPeer) -> None:
    expect(chat.page.locator(".suggestion").first).to_be_visible()


def queued(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([{"type": "queued", "position": 7, "eta_ms": 40_000}])
    chat.ask(QUESTION)
    expect(chat.answer).to_have_attribute("data-phase", "queued")


def reading(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(*sources()), {"type": "progress", "prefilled": 640, "total": 1020}])
    chat.ask(QUESTION)
    expect(chat.answer).to_have_attribute("data-phase", "reading")


def thinking(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(*sources()), {"type": "thinking", "text": "The notice says eight. "}])
    chat.ask(QUESTION)
    expect(chat.answer).to_have_attribute("data-phase", "thinking")
    chat.answer.locator("details.thinking summary").click()


def writing(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(*sources()), *deltas(TEXT[:230], 20)])
    chat.ask(QUESTION)
    chat.wait_text(120)


def finished(chat: ChatPage, peer: ScriptedPeer) -> None:
    """With sources, used ones and one that was left out."""
    peer.answer([*opening(*sources()), *deltas(TEXT, 40), citation(), finish()])
    chat.ask(QUESTION)
    chat.wait_end()
    expect(chat.answer.locator("pre .hljs-keyword").first).to_be_visible()


def partly_supported(chat: ChatPage, peer: ScriptedPeer) -> None:
    """What stands in the materials, and what the model has added."""
    text = "The room is open from eight to nine [1]. Professor Whitfield opened it."
    start = text.index("Professor")
    added = {**citation(), "n": 0, "passage": None, "start": start, "end": len(text), "marks": []}
    told = [citation(), {**added, "by": "none"}]
    peer.answer([*opening(*sources()), *deltas(text, 40), *told, finish()])
    chat.ask("When is the room open, and who opened it?")
    chat.wait_end()
    expect(chat.answer.locator(".unsourced")).to_have_count(1)


def with_sources_open(chat: ChatPage, peer: ScriptedPeer) -> None:
    finished(chat, peer)
    for summary in chat.answer.locator(".left-out > summary, .source summary").all():
        if summary.is_visible():
            summary.click()


def with_details(chat: ChatPage, peer: ScriptedPeer) -> None:
    finished(chat, peer)
    chat.answer.locator(".details-toggle").click()
    expect(chat.answer.locator(".details")).to_be_visible()


def with_preview(chat: ChatPage, peer: ScriptedPeer) -> None:
    finished(chat, peer)
    chat.answer.locator(".cite").first.hover()
    expect(chat.page.locator(".preview")).to_be_visible()


def with_panel(chat: ChatPage, peer: ScriptedPeer) -> None:
    finished(chat, peer)
    chat.answer.locator(".source summary").first.click()
    chat.answer.locator(".source .link-button").first.click()
    expect(chat.page.locator("#source-panel mark").first).to_be_visible()


def with_a_wrong_answer(chat: ChatPage, peer: ScriptedPeer) -> None:
    finished(chat, peer)
    chat.answer.get_by_role("button").filter(has=chat.page.locator(".icon-thumb-down")).click()
    expect(chat.answer.locator("textarea, input").first).to_be_visible()


def editing(chat: ChatPage, peer: ScriptedPeer) -> None:
    finished(chat, peer)
    chat.page.locator(".question-edit").last.click()
    expect(chat.page.locator(".question-input")).to_be_focused()


def ended(kind: str, *, can_continue: bool = False, **detail: Any) -> State:
    """An answer that ended otherwise than by itself."""

    def lead(chat: ChatPage, peer: ScriptedPeer) -> None:
        end = finish(kind, can_continue=can_continue, **detail)
        peer.answer([*opening(*sources(), turns_dropped=2), *deltas(TEXT[:36], 40), end])
        chat.ask(QUESTION)
        chat.page.wait_for_function(HAS_ENDED, arg=-1)
        expect(chat.answer.locator(".answer-foot")).to_be_visible()

    return lead


def not_found(chat: ChatPage, peer: ScriptedPeer) -> None:
    nearest = [{**one, "used": False} for one in sources()]
    peer.answer([*opening(*nearest, not_found=True)[:1], finish("not_found")])
    chat.ask(QUESTION)
    chat.wait_end()


def without_support(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(*sources()), *deltas("Yes.", 9), {**finish(), "no_support": True}])
    chat.ask(QUESTION)
    chat.wait_end()
    expect(chat.answer.locator(".notice")).to_be_visible()


def failed(code: str) -> State:
    def lead(chat: ChatPage, peer: ScriptedPeer) -> None:
        peer.refuse(code, retryable=code == "queue_full")
        chat.ask(QUESTION)
        chat.wait_end("error")

    return lead


def with_menu(chat: ChatPage, peer: ScriptedPeer) -> None:
    list_one(chat)
    open_menu(chat)


def renaming(chat: ChatPage, peer: ScriptedPeer) -> None:
    list_one(chat)
    open_menu(chat)
    chat.page.locator(".menu-item").first.click()
    expect(chat.page.locator("dialog[open] input")).to_be_focused()


def deleting(chat: ChatPage, peer: ScriptedPeer) -> None:
    list_one(chat)
    open_menu(chat)
    chat.page.locator(".menu-item-danger").click()
    expect(chat.page.locator("dialog[open]")).to_be_visible()


def list_one(chat: ChatPage) -> None:
    """One conversation in the list: the peer's are not the server's."""
    listed = {"id": "c1", "course": None, "title": QUESTION, "num_messages": 2,
              "updated_at": "2026-11-30T09:00:00.000Z", "carried_from": None}  # fmt: skip
    chat.page.route(
        "**/api/conversations?**",
        lambda route: route.fulfill(json={"conversations": [listed], "next": None}),
    )
    chat.page.reload()
    chat.page.wait_for_selector("html.is-ready")
    open_sidebar(chat)


def open_sidebar(chat: ChatPage) -> None:
    if chat.page.locator("#menu").is_visible():
        chat.page.locator("#menu").click()
    expect(chat.page.locator("#sidebar")).to_be_in_viewport()


def open_menu(chat: ChatPage) -> None:
    chat.page.locator(".conversation-more").first.click()
    expect(chat.page.locator(".menu")).to_be_visible()


def with_sidebar(chat: ChatPage, peer: ScriptedPeer) -> None:
    list_one(chat)
    expect(chat.page.locator(".conversation").first).to_be_visible()


def with_unsent(chat: ChatPage, peer: ScriptedPeer) -> None:
    """One question was refused, one is on its way, in conversations that were left."""
    list_one(chat)
    chat.page.keyboard.press("Escape")  # where the list is a drawer
    new = chat.page.locator("a.new-conversation")
    peer.refuse("queue_full", retryable=True)
    chat.ask(QUESTION)
    expect(chat.answer).to_have_attribute("data-state", "error")
    new.dispatch_event("click")
    peer.ignore()
    chat.ask("What must I bring?")
    new.dispatch_event("click")
    open_sidebar(chat)
    expect(chat.page.locator(".unsent .conversation")).to_have_count(2)


def with_help(chat: ChatPage, peer: ScriptedPeer) -> None:
    open_sidebar(chat)
    chat.page.locator("#help").click()
    expect(chat.page.locator("dialog[open] .words")).to_be_visible()


def with_help_on_keys(chat: ChatPage, peer: ScriptedPeer) -> None:
    chat.page.keyboard.press("Control+/")
    expect(chat.page.locator("dialog[open] .shortcuts")).to_be_visible()


def with_a_word_explained(chat: ChatPage, peer: ScriptedPeer) -> None:
    with_details(chat, peer)
    chat.answer.locator(".meter .help-link").click()
    expect(chat.page.locator("dialog[open] .word-asked")).to_be_in_viewport()


def with_versions(chat: ChatPage, peer: ScriptedPeer) -> None:
    """A question in other words, whose answer was made again: two switchers."""
    finished(chat, peer)
    chat.page.locator(".question-edit").last.click()
    chat.page.locator(".question-input").fill("When does it open?")
    chat.page.locator(".question-input").press("Enter")
    expect(chat.page.locator(".question .versions")).to_contain_text("2/2")
    chat.wait_end()
    chat.answer.locator("[data-action=regenerate]").click()
    expect(chat.answer.locator(".versions")).to_contain_text("2/2")
    chat.wait_end()


def continued(chat: ChatPage, peer: ScriptedPeer) -> None:
    """An answer of two parts."""
    ended("max_tokens", can_continue=True, limit=512)(chat, peer)
    start = {**opening()[2], "continued": True}
    peer.answer([start, *deltas(TEXT[36:], 40), citation(), {**finish(), "can_undo": True}])
    chat.answer.locator("[data-action=continue]").click()
    expect(chat.answer.locator(".seam")).to_have_count(1)
    chat.wait_end()


def with_a_seam_explained(chat: ChatPage, peer: ScriptedPeer) -> None:
    continued(chat, peer)
    chat.answer.locator(".seam").click()
    expect(chat.answer.locator(".seam-note button")).to_be_focused()


def carried(chat: ChatPage, peer: ScriptedPeer) -> None:
    """A conversation that begins with a summary which does not hold all, and its first question."""
    ended("context_window", limit=4096)(chat, peer)
    context = {**opening()[1], "passages": 0, "turns": 6, "turns_left_out": 3}
    summary = "You asked when the room is open.\n\n- It opens at **eight**.\n- Bring a card."
    peer.answer([context, opening()[2], *deltas(summary, 20), finish()])
    chat.answer.locator("[data-action=carry]").click()
    expect(chat.page.locator(".summary .notice")).to_be_visible()
    finished(chat, peer)


STATES: dict[str, State] = {
    "unsent": with_unsent,
    "empty": empty,
    "queued": queued,
    "reading": reading,
    "thinking": thinking,
    "writing": writing,
    "finished": finished,
    "sources": with_sources_open,
    "partly_supported": partly_supported,
    "details": with_details,
    "preview": with_preview,
    "panel": with_panel,
    "judged": with_a_wrong_answer,
    "editing": editing,
    "cut": ended("max_tokens", can_continue=True, limit=512),
    "stopped_at": ended("stop_string", matched="END"),
    "window_full": ended("context_window", limit=4096),
    "cancelled": ended("cancelled", can_continue=True),
    "deadline": ended("deadline"),
    "thought_only": ended("max_tokens", can_continue=True, limit=512, **{"in": "reasoning"}),
    "not_found": not_found,
    "no_support": without_support,
    **{f"error_{code}": failed(code) for code in ERRORS},
    "sidebar": with_sidebar,
    "menu": with_menu,
    "renaming": renaming,
    "deleting": deleting,
    "help": with_help,
    "help_keys": with_help_on_keys,
    "help_word": with_a_word_explained,
    "versions": with_versions,
    "continued": continued,
    "seam": with_a_seam_explained,
    "carried": carried,
}
"""On one page after another: a state begins where the page is fresh."""
