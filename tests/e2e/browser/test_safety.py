"""Hostile text is harmless, in answers (streamed in pieces of three characters), in questions,
and in the history."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, passage

HOSTILE = [
    '<img src=x onerror="window.__pwn=1">',
    "<script>window.__pwn=1</script>",
    "<svg/onload=window.__pwn=1>",
    "**bold** <b onmouseover=window.__pwn=1>x</b>",
]
TRICKS = r"""[a](javascript:window.__pwn=1) [b](data:text/html,<script>window.__pwn=1</script>)
![seen](https://tracker.example/pixel.png) ![c](data:image/png;base64,iVBORw0KGgo=)
<a href="javascript:window.__pwn=1">d</a> [e](vbscript:x) [f](//tracker.example/x)

$\href{javascript:window.__pwn=1}{g}$ $\htmlData{x=y}{h}$ $\url{javascript:1}$

````html
```
<script>window.__pwn=1</script>
```
````

| <img src=x onerror=window.__pwn=1> | [i](jAvAsCrIpT:window.__pwn=1) |
| - | - |
| 1 | 2 |

Reversed ‮text‬ and the end.
"""
CONTENT = ".messages .prose, .messages .question-text"
SCAN = """(selector) => {
  const found = [];
  for (const root of document.querySelectorAll(selector)) {
    for (const node of root.querySelectorAll('*')) {
      if (/^(script|img|iframe|object|embed|form|input|style|link|base)$/i.test(node.tagName)
          || (/^svg$/i.test(node.tagName) && !node.matches('.icon') && !node.closest('.katex')))
        found.push(node.tagName);
      for (const {name, value} of node.attributes) {
        if (/^on/i.test(name)) found.push(name);
        if (/^(href|src)$/i.test(name) && !/^(https?|mailto):/i.test(value)) found.push(value);
      }
    }
  }
  return found;
}"""


def assert_harmless(chat: ChatPage) -> None:
    assert chat.page.evaluate("() => window.__pwn") is None
    assert chat.page.evaluate(SCAN, CONTENT) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_markup_in_question_answer_and_history_is_text(open_chat: OpenChat, text: str) -> None:
    chat = open_chat()
    chat.ask(f"{QUESTION} {text}")
    shown = chat.wait_end()
    visible = text.replace("**", "")
    assert visible in shown
    expect(chat.questions).to_have_text([f"{QUESTION} {text}"])
    assert_harmless(chat)
    chat.page.reload()
    assert visible in chat.wait_end()
    expect(chat.questions).to_have_text([f"{QUESTION} {text}"])
    assert_harmless(chat)


@pytest.mark.parametrize("num_chars", [1, 3, 10_000])
def test_tricks_of_markdown_and_latex_do_nothing(open_chat: OpenChat, num_chars: int) -> None:
    peer = ScriptedPeer()
    requests: list[str] = []
    chat = open_chat(before=peer.attach_to)
    chat.page.on("request", lambda request: requests.append(request.url))
    text = "\n\n".join([*HOSTILE, TRICKS])
    hostile_passage = {**passage(1), "title": HOSTILE[0], "text": text, "locator": HOSTILE[1]}
    peer.answer([*opening(hostile_passage), *deltas(text, num_chars), finish()])
    chat.ask(text)
    chat.wait_end()
    assert_harmless(chat)
    chat.answer.locator(".source summary").click()
    chat.answer.locator(".source .link-button").click()
    expect(chat.page.locator(".panel-body")).to_contain_text("the end.")
    assert chat.page.evaluate(SCAN, ".source, #source-panel .panel-body") == []
    assert not [url for url in requests if "tracker" in url or url.startswith("data:")]
    assert "\u202e" not in chat.text
