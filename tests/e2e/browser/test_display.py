"""What the page shows for what the server may say: gaps, snapshots, where the view begins."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.scripted_peer import (
    ScriptedPeer,
    deltas,
    finish,
    opening,
)


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
    peer.send(
        {"type": "delta", "text": " three", "seq": 7},
        {"type": "delta", "text": " four", "seq": 8},
        finish(),
    )
    assert chat.wait_end() == "one two three four"
    assert peer.sent("attach") == [{"type": "attach", "run": "r1", "after_seq": 6}]


def test_a_snapshot_stands_for_older_deltas(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(), {"type": "delta", "text": "one"}])
    chat.ask("What?")
    chat.wait_text(3)
    peer.send({"type": "snapshot", "text": "one two three", "through_seq": 40, "seq": 40})
    peer.send({"type": "delta", "text": " four", "seq": 41}, {**finish(), "seq": 42})
    assert chat.wait_end() == "one two three four"
