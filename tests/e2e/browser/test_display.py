"""What the page shows for what the server may say: every end, every notice, Markdown, gaps."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from engine.api import FinishType
from server.app.records import state_of
from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import (
    CONTEXT,
    ScriptedPeer,
    deltas,
    finish,
    opening,
    passage,
)

MARKDOWN = r"""# Heading

Some **bold** and `code`, the source [1], and one without: [9].

1. one

2. two

```python
def f(x):
    return x + 1
```

| a | b |
| :-- | --: |
| 1 | 2 |

Inline $x^2$, not money: $5 and $10.

$$
\frac{a}{b}
$$

After \(y_1\) and

\[
\sum_i \fbox{i}
\]

The end.
"""


@pytest.fixture
def peer() -> ScriptedPeer:
    return ScriptedPeer()


@pytest.fixture
def chat(open_chat: OpenChat, peer: ScriptedPeer) -> ChatPage:
    return open_chat(before=peer.attach_to)


@pytest.mark.parametrize(
    ("end", "words", "button"),
    [
        (finish("eos"), "Complete", None),
        (finish("stop_string", matched="\n\nQ:"), r"Ended at the stop sequence “\n\nQ:”", None),
        (
            finish("max_tokens", can_continue=True),
            "stopped at the length limit of 512 tokens",
            "Continue",
        ),
        (finish("context_window"), "window of 4,096 tokens is full", "New conversation"),
        (finish("kv_capacity"), "memory can hold no more", None),
        (finish("cancelled", can_continue=True), "You stopped this answer", "Continue"),
        (finish("deadline"), "longer than the time limit", "Retry"),
        (finish("shutdown", can_continue=True), "was shut down", "Continue"),
        (
            {"type": "error", "code": "internal", "message": "Failed.", "retryable": True},
            "Something went wrong on the server. internal",
            "Retry",
        ),
        (
            {"type": "error", "code": "prompt_too_long", "message": "9 > 8", "retryable": False},
            "too long for the model’s window",
            None,
        ),
    ],
    ids=lambda value: (
        str(value.get("finish_detail", {}).get("type") or value.get("code"))
        if isinstance(value, dict)
        else ""
    ),
)
def test_every_end_is_told_in_words(
    chat: ChatPage, peer: ScriptedPeer, end: dict[str, object], words: str, button: str | None
) -> None:
    peer.answer([*opening(passage(1)), *deltas("Some text."), end])
    chat.ask("What?")
    expect(chat.answer.locator(".finish, .notice-text")).to_contain_text(words)
    expect(chat.status).to_contain_text(words.removesuffix(" internal"))
    expect(chat.answer.locator(".prose")).to_have_text("Some text.")
    buttons = chat.answer.locator(".action")
    if button is None:
        expect(buttons).to_have_count(0)
    else:
        expect(buttons).to_have_text([button])


@pytest.mark.parametrize(
    "kind", ["eos", "max_tokens", "cancelled", "deadline", "shutdown", "client_gone", "slow_client"]
)
def test_an_end_reads_the_same_after_a_reload(
    chat: ChatPage, peer: ScriptedPeer, kind: str
) -> None:
    end = finish(kind, can_continue=kind != "eos")
    peer.answer([*opening(), *deltas("Some text."), end])
    chat.ask("What?")
    chat.wait_end(state_of(FinishType(kind)))
    foot = chat.answer.locator(".answer-tail")
    live = foot.inner_text()
    answer = {
        "id": "a1",
        "parent": "q1",
        "role": "assistant",
        "text": "Some text.",
        "state": state_of(FinishType(kind)),
        "model": "peer",
        "max_tokens": 512,
        "context": CONTEXT,
        **{name: end[name] for name in end if name != "type"},
    }
    question = {"id": "q1", "parent": None, "role": "user", "text": "What?"}
    stored = {"id": "c1", "course": None, "messages": [question, answer], "active_run": None}
    chat.page.route("**/api/conversations/c1", lambda route: route.fulfill(json=stored))
    chat.page.reload()
    chat.wait_end(state_of(FinishType(kind)))
    assert foot.inner_text() == live


def test_phases_are_announced_and_shown(chat: ChatPage, peer: ScriptedPeer) -> None:
    retrieval, context, start = opening(passage(1), passage(2))
    chat.ask("What?")
    phase = chat.answer.locator(".phase")
    expect(phase).to_contain_text("Searching the materials")
    expect(chat.status).to_have_text("Searching the materials…")
    peer.send({"type": "queued", "position": 3})
    expect(phase).to_contain_text("Waiting in line: number 3")
    peer.send(retrieval, context, start, {"type": "progress", "prefilled": 30, "total": 100})
    expect(phase).to_contain_text("Reading 2 passages… 30%", use_inner_text=True)
    bar = phase.get_by_role("progressbar", name="Reading 2 passages…")
    expect(bar).to_have_attribute("aria-valuenow", "30")
    peer.send(*deltas("Words"))
    expect(chat.status).to_have_text("Writing the answer…")
    expect(phase).to_be_hidden()
    peer.send(finish())
    expect(chat.status).to_have_text("Complete")


def test_one_passage_is_not_called_passages(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer(opening(passage(1)))
    chat.ask("What?")
    expect(chat.status).to_have_text("Reading 1 passage…")


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
    expect(chat.answer.locator(".finish")).to_have_text("Not found in the materials")


def test_a_line_shows_where_the_models_view_begins(chat: ChatPage, peer: ScriptedPeer) -> None:
    for n, (kept, dropped) in enumerate([(0, 0), (1, 0), (1, 1), (1, 2)]):
        peer.answer(
            [*opening(turns_kept=kept, turns_dropped=dropped), *deltas(f"Answer {n}"), finish()]
        )
        chat.ask(f"Question {n}")
        chat.wait_end()
    line = chat.page.locator(".view-line")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("2 earlier questions did not fit")
    expect(chat.page.locator(".view-line + .question")).to_contain_text("Question 2")


def test_markdown_is_the_same_streamed_and_whole(
    open_chat: OpenChat, peer: ScriptedPeer, chat: ChatPage
) -> None:
    peer.answer([*opening(passage(1)), *deltas(MARKDOWN), finish()])
    chat.ask("Streamed")
    chat.wait_end()
    whole = ScriptedPeer()
    other = open_chat(before=whole.attach_to)
    whole.answer([*opening(passage(1)), *deltas(MARKDOWN, 10_000), finish()])
    other.ask("Whole")
    other.wait_end()
    for page in (chat, other):
        prose = page.answer.locator(".prose")
        expect(prose.locator(".katex")).to_have_count(4)
        expect(prose.locator(".hljs-keyword").first).to_have_text("def")
        expect(prose.locator("ol > li")).to_have_count(2)
        expect(prose.locator("ol")).to_have_count(1)
        expect(prose.locator("td.align-right")).to_have_text(["2"])
        expect(prose).to_contain_text("$5 and $10")
        expect(prose.locator(".cite")).to_have_text(["1"])
        expect(prose).to_contain_text("and one without:.")
    html = [page.answer.locator(".prose").inner_html() for page in (chat, other)]
    assert html[0] == html[1]


def test_formulas_keep_their_styles_under_the_policy(chat: ChatPage, peer: ScriptedPeer) -> None:
    """KaTeX would write these as style attributes, which are barred (and told as an error)."""
    text = r"$\vec{v}$ and $\fcolorbox{red}{white}{f}$ and $\pmb{p}$ and $\bad{x}$"
    peer.answer([*opening(), *deltas(text), finish()])
    chat.ask("What?")
    chat.wait_end()
    prose = chat.answer.locator(".prose")
    expect(prose.locator(".katex")).to_have_count(3)
    width = "(arrow) => parseFloat(arrow.style.width)"
    assert prose.locator(".katex svg").first.evaluate(width) > 0
    expect(prose.locator(".math-source")).to_have_text(r"\bad{x}")


def test_growing_renders_only_the_last_block_again(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer(
        [*opening(), *deltas("First paragraph.\n\nSecond paragraph.\n\nThe third\nof them")]
    )
    chat.ask("What?")
    chat.wait_text(30)
    chat.page.evaluate(
        "() => document.querySelectorAll('.prose > p').forEach((p) => (p.wasHere = true))"
    )
    peer.send(*deltas(" grows."))
    expect(chat.answer.locator(".prose")).to_contain_text("grows.")
    kept = "() => [...document.querySelectorAll('.prose > p')].map((p) => p.wasHere === true)"
    assert chat.page.evaluate(kept) == [True, True, False]


def test_numbers_that_were_seen_are_ignored_and_a_gap_is_asked_for(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer([*opening(), {"type": "delta", "text": "one "}])
    chat.ask("What?")
    chat.wait_text(3)
    peer.send(
        {"type": "delta", "text": "one ", "seq": 5}, {"type": "delta", "text": "two", "seq": 6}
    )
    peer.send({"type": "delta", "text": "four", "seq": 8})
    expect(chat.answer.locator(".prose")).to_have_text("one two")
    chat.page.wait_for_timeout(100)
    assert peer.received[-1] == {"type": "attach", "run": "r1", "after_seq": 6}
    peer.send(
        {"type": "delta", "text": " three", "seq": 7},
        {"type": "delta", "text": " four", "seq": 8},
        finish(),
    )
    assert chat.wait_end() == "one two three four"


def test_a_snapshot_stands_for_older_deltas(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(), {"type": "delta", "text": "one"}])
    chat.ask("What?")
    chat.wait_text(3)
    peer.send({"type": "snapshot", "text": "one two three", "through_seq": 40, "seq": 40})
    peer.send({"type": "delta", "text": " four", "seq": 41}, {**finish(), "seq": 42})
    assert chat.wait_end() == "one two three four"


def test_the_reader_who_scrolled_up_is_left_alone(chat: ChatPage, peer: ScriptedPeer) -> None:
    lines = "\n\n".join(f"Paragraph {n}." for n in range(60))
    peer.answer([*opening(), *deltas(lines, 50)])
    chat.ask("What?")
    chat.wait_text(600)
    chat.page.mouse.move(700, 300)
    chat.page.mouse.wheel(0, -400)
    newest = chat.page.get_by_role("button", name="Newest")
    expect(newest).to_be_visible()
    top = chat.page.evaluate("() => document.querySelector('#scroll').scrollTop")
    peer.send(*deltas("\n\nMore text comes." * 20))
    expect(chat.answer).to_contain_text("More text")
    assert chat.page.evaluate("() => document.querySelector('#scroll').scrollTop") == top
    newest.click()
    peer.send(*deltas("\n\nAnd the last line."), finish())
    expect(chat.answer.locator(".foot-line")).to_be_in_viewport()
    expect(newest).to_be_hidden()


def test_the_fallback_model_is_named_as_such(open_chat: OpenChat) -> None:
    peer = ScriptedPeer(is_fallback=True)
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("small fallback model")


def test_a_refused_question_can_be_asked_again(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.refuse("queue_full", retryable=True)
    chat.ask("What?")
    expect(chat.answer.locator(".notice-red")).to_contain_text("Too many people")
    peer.answer([*opening(), *deltas("This."), finish()])
    chat.answer.get_by_role("button", name="Retry").click()
    expect(chat.answer.locator(".prose")).to_have_text("This.")
    expect(chat.questions).to_have_text(["What?"])
    expect(chat.answers).to_have_count(1)
    first, second = (message for message in peer.received if message["type"] == "ask")
    assert first["text"] == second["text"]
    assert first["id"] != second["id"]


def test_a_failed_answer_can_be_made_again(chat: ChatPage, peer: ScriptedPeer) -> None:
    error = {"type": "error", "code": "internal", "message": "", "retryable": True}
    peer.answer([*opening(passage(1)), *deltas("Half"), error])
    chat.ask("What?")
    expect(chat.answer.locator(".prose")).to_have_text("Half")
    peer.answer([*opening(), *deltas("Whole."), finish()])
    chat.answer.get_by_role("button", name="Retry").click()
    assert chat.wait_end() == "Whole."
    expect(chat.answers).to_have_count(1)
    assert peer.received[-1]["type"] == "regenerate"
    assert peer.received[-1]["message"] == "a1"
