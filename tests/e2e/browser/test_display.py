"""What the page shows for what the server may say: Markdown, gaps, where the view begins."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import (
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
    assert chat.page.evaluate(kept) == [True, True, True]


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
