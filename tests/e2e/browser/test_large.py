"""A conversation of five hundred questions."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import CONTEXT, ScriptedPeer, deltas, finish, opening

NUM_TURNS = 500
MAX_HEAP_BYTES = 150e6

ANSWER = """Answer {n} has a list:

1. first
2. second

and `code`, and a table.

| a | b |
| - | - |
| 1 | {n} |
"""

COUNT_MADE = """window.made = [];
new MutationObserver((records) => {
  const nodes = records.flatMap((record) => [...record.addedNodes]);
  const made = nodes.filter((node) => node.matches?.('#messages > article')).length;
  if (made > 0) window.made.push(made);
}).observe(document, {subtree: true, childList: true});"""


def conversation(num_turns: int, **last: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for n in range(1, num_turns + 1):
        parent = messages[-1]["id"] if messages else None
        messages.append({"id": f"q{n}", "parent": parent, "role": "user", "text": f"Question {n}"})
        answer = {
            "id": f"a{n}",
            "parent": f"q{n}",
            "role": "assistant",
            "text": ANSWER.format(n=n),
            "state": "finished",
            "finish_reason": "stop",
            "finish_detail": {"type": "eos"},
            "context": CONTEXT,
        }
        messages.append(answer)
    messages[-1] |= last
    return {"id": "c1", "course": None, "title": "", "messages": messages, "active_run": None}


def opened(
    open_chat: OpenChat, stored: dict[str, Any], peer: ScriptedPeer, script: str = ""
) -> ChatPage:
    def prepare(page: Page) -> None:
        peer.attach_to(page)
        page.route("**/api/conversations/c1*", lambda route: route.fulfill(json=stored))
        if script:
            page.add_init_script(script)

    chat = open_chat("/c/c1", before=prepare)
    expect(chat.questions.last).to_have_text(f"Question {len(stored['messages']) // 2}")
    return chat


def is_at_bottom(page: Page) -> bool:
    return bool(
        page.evaluate(
            """() => { const area = document.querySelector('#scroll');
            return area.scrollHeight - area.scrollTop - area.clientHeight <= 2; }"""
        )
    )


def test_five_hundred_questions_begin_at_the_newest(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    chat = opened(open_chat, conversation(NUM_TURNS), peer, COUNT_MADE)
    chat.page.wait_for_function("() => document.querySelectorAll('.question').length >= 30")
    earlier = chat.page.locator("button.earlier")
    expect(earlier).to_have_text(f"Show {NUM_TURNS - 30} earlier questions")
    assert is_at_bottom(chat.page)
    # The newest two are there before anything else is made.
    made = chat.page.evaluate("() => window.made")
    assert made[0] == 4
    assert sum(made) == 60
    cdp = chat.page.context.new_cdp_session(chat.page)
    cdp.send("HeapProfiler.collectGarbage")
    assert cdp.send("Runtime.getHeapUsage")["usedSize"] < MAX_HEAP_BYTES
    # All of it is there for who goes up, or prints; and nothing has frozen the page meanwhile.
    chat.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(chat.questions).to_have_count(NUM_TURNS)
    expect(earlier).to_have_count(0)
    assert is_at_bottom(chat.page)


def test_earlier_questions_come_above_and_move_nothing(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    chat = opened(open_chat, conversation(100), peer)
    chat.page.wait_for_function("() => document.querySelectorAll('.question').length >= 30")
    expect(chat.questions.first).to_have_text("Question 71")
    top = """() => [...document.querySelectorAll('.question')]
      .find((one) => one.textContent.includes('Question 71')).getBoundingClientRect().top"""
    chat.page.evaluate(
        """() => [...document.querySelectorAll('.question')]
        .find((one) => one.textContent.includes('Question 71')).scrollIntoView()"""
    )
    # The page itself is not scrolled by that.
    assert chat.page.evaluate("document.scrollingElement.scrollTop") <= 1
    before = chat.page.evaluate(top)
    chat.page.wait_for_function("() => document.querySelectorAll('.question').length > 30")
    expect(chat.questions.first).to_have_text("Question 51")
    # Each time that something comes, the place may be off by the part of a pixel by which nothing
    # can be scrolled. One question alone has hundreds of them.
    assert abs(chat.page.evaluate(top) - before) <= 5
    # Asking goes to the newest, and keeps what is on the page.
    peer.num_asked = 100
    peer.answer([*opening(), *deltas("Yes."), finish()])
    chat.ask("And now?")
    assert chat.wait_end() == "Yes."
    assert peer.received[-1]["parent"] == "a100"
    expect(chat.questions.first).to_have_text("Question 51")
    assert is_at_bottom(chat.page)


def test_the_view_begins_where_the_server_says(open_chat: OpenChat, peer: ScriptedPeer) -> None:
    context = {**CONTEXT, "turns_kept": 2, "turns_dropped": 1, "view_from": "q2"}
    stored = conversation(5, context=context)
    # It is no turn of the model's: nothing was found, and the model never saw it.
    stored["messages"][7] |= {"not_found": True, "finish_detail": {"type": "not_found"}}
    chat = opened(open_chat, stored, peer)
    expect(chat.page.locator(".view-line")).to_contain_text("1 earlier question did not fit")
    expect(chat.page.locator(".view-line + .question")).to_contain_text("Question 2")
    # An answer of old tells only how many: the one that was not found is not counted.
    del context["view_from"]
    chat.page.reload()
    expect(chat.page.locator(".view-line + .question")).to_contain_text("Question 2")


def test_a_question_far_up_is_reached_by_its_name(open_chat: OpenChat, peer: ScriptedPeer) -> None:
    """As the search does: it opens a conversation at the message that was found."""
    chat = opened(open_chat, conversation(100), peer)
    listed = {"id": "c1", "course": None, "title": "Long", "updated_at": "2026-11-30T00:00:00Z"}
    snippet = {"message": "a3", "role": "assistant", "text": "Answer 3", "marks": [[0, 6]]}
    found = {"conversations": [{**listed, "num_messages": 200, "snippet": snippet}], "next": None}
    chat.page.route("**/api/conversations?*", lambda route: route.fulfill(json=found))
    chat.page.locator(".search-input").fill("Answer")
    chat.page.locator(".conversation", has_text="Long").first.click()
    expect(chat.page.locator(".answer[data-message=a3]")).to_be_focused()
    expect(chat.page.locator(".answer[data-message=a3]")).to_be_in_viewport()
