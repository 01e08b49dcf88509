"""Writing a question: line breaks, double submits, long texts and what they take of the window."""

from __future__ import annotations

import json
import re
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, wait_until


def sent(peer: ScriptedPeer) -> list[str]:
    return [message["text"] for message in peer.sent("ask")]


@pytest.fixture
def peer() -> ScriptedPeer:
    peer = ScriptedPeer()
    peer.answer([*opening(), *deltas("Yes."), finish()])
    return peer


def test_shift_enter_breaks_the_line(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.question.press_sequentially("one")
    chat.question.press("Shift+Enter")
    chat.question.press_sequentially("two")
    expect(chat.question).to_have_value("one\ntwo")
    expect(chat.questions).to_have_count(0)


def test_a_double_submit_is_one_question(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.question.fill(QUESTION)
    chat.page.evaluate(
        """() => { const form = document.querySelector('#composer');
             form.requestSubmit(); form.requestSubmit(); }"""
    )
    chat.question.press("Enter")
    chat.wait_end()
    expect(chat.questions).to_have_text([QUESTION])


def test_enter_while_an_answer_runs_says_why_nothing_is_sent(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One")])
    chat.ask("Question 1")
    expect(chat.answer.locator(".prose")).to_have_text("One")
    note = chat.page.locator("#composer-note")
    chat.question.fill("Question 2")
    expect(note).to_be_hidden()
    chat.question.press("Enter")
    expect(note).to_contain_text("Wait until it has ended")
    expect(chat.question).to_have_value("Question 2")
    chat.page.locator("#language").click()
    expect(note).to_contain_text("请等它结束")
    peer.send(finish())
    expect(note).to_be_hidden()
    expect(chat.question).to_have_value("Question 2")
    assert len(peer.sent("ask")) == 1
    chat.question.press("Enter")
    wait_until(chat.page, lambda: len(peer.sent("ask")) == 2)


def test_blanks_alone_are_not_sent(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.question.fill("   \n ")
    expect(chat.page.get_by_role("button", name="Send")).to_be_disabled()
    chat.question.press("Enter")
    expect(chat.questions).to_have_count(0)


def test_a_long_question_arrives_whole(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("Long."), finish()])
    question = "word " * 24_000 + "end"
    chat.ask(question)
    assert chat.wait_end() == "Long."
    assert [message["text"] for message in peer.received if message["type"] == "ask"] == [question]


def test_a_question_too_long_to_send_is_kept(open_chat: OpenChat) -> None:
    """Its bytes count, not its characters."""
    peer = ScriptedPeer(max_message_bytes=4096)
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    peer.answer([*opening(), *deltas("Short."), finish()])
    note = chat.page.locator("#composer-note")
    for question in ("长" * 1300, '"' * 1900):
        chat.question.fill(question)
        chat.question.press("Enter")
        expect(note).to_have_text(
            "This question is too long to send: it has 4 KB, and at most 3 KB can be sent. "
            "Shorten it."
        )
        expect(chat.question).to_have_value(question)
        expect(chat.questions).to_have_count(0)
    chat.ask("长" * 1100)
    expect(note).to_be_hidden()
    assert chat.wait_end() == "Short."
    assert sum(message["type"] == "ask" for message in peer.received) == 1


def test_a_waiting_question_too_long_to_send_comes_back(open_chat: OpenChat) -> None:
    """Written before the server told its limit; sent, it would end every connection."""
    waiting = [{"type": "ask", "id": "k1", "text": "w" * 5000, "course": None}]
    peer = ScriptedPeer(max_message_bytes=4096)

    def prepare(page: Page) -> None:
        peer.attach_to(page)
        script = f"sessionStorage.setItem('lectern.outbox', {json.dumps(json.dumps(waiting))})"
        page.add_init_script(script)

    chat = open_chat(before=prepare)
    expect(chat.answer.locator(".notice-red")).to_contain_text("too long to be sent")
    expect(chat.question).to_have_value("w" * 5000)
    assert all(message["type"] != "ask" for message in peer.received)


def test_a_question_too_long_for_the_window_is_not_lost(open_chat: OpenChat) -> None:
    chat = open_chat()
    question = f"{QUESTION} " + "word " * 8000 + "end"
    chat.ask(question)
    chat.wait_end("error")
    notice = chat.answer.locator(".notice-red")
    expect(notice).to_contain_text("too long for the model’s window")
    expect(chat.answer.locator(".action")).to_have_count(0)
    expect(chat.questions).to_have_text([question])
    expect(chat.question).to_have_value(question)
    chat.page.reload()
    chat.wait_end("error")
    expect(notice).to_contain_text("too long for the model’s window")
    expect(chat.questions).to_have_text([question])
    expect(chat.question).to_have_value(question)
    chat.ask()
    assert chat.wait_end() == QUESTION


def budget_of(chat: ChatPage) -> Locator:
    return chat.page.locator("#budget")


def test_a_long_text_is_counted_against_the_window(open_chat: OpenChat) -> None:
    """By the server, in the model's own tokens; and only where it matters."""
    chat = open_chat()
    budget = budget_of(chat)
    expect(chat.page.locator("#model-note")).to_contain_text("scripted")
    chat.question.fill("A short question")
    expect(budget).to_be_hidden()
    chat.question.fill("long " * 5000)
    expect(budget).to_have_text(
        re.compile(r"^[\d,]+ tokens, and a question can have at most [\d,]+ here: shorten it")
    )
    numbers = [int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", budget.inner_text())]
    assert numbers[0] > numbers[1] > 0
    # Whoever does not see it is told too, once.
    expect(chat.status).to_have_text(budget.inner_text())
    # It stands below what the reader writes, and is its description.
    expect(chat.question).to_have_accessible_description(re.compile("tokens, and a question"))
    chat.question.press("Control+a")
    chat.question.press("Delete")
    expect(budget).to_be_hidden()
    chat.page.get_by_role("button", name="中文").click()
    chat.question.fill("长" * 50_000)
    # So much cannot fit, whatever its tokens are: they are not all counted.
    expect(budget).to_have_text(re.compile(r"^至少 [\d,]+ 个词元，超出了问题可用的 [\d,]+ 个"))


def test_what_is_not_counted_yet_is_estimated_at_once(open_chat: OpenChat) -> None:
    """The peer answers no count: the words say that it is about so much."""
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    chat.question.fill("word " * 800)
    expect(budget_of(chat)).to_have_text(re.compile("^About 1,000 tokens of the 2,458 that"))
    chat.question.fill("word " * 1500)
    expect(budget_of(chat)).to_contain_text("the fewer passages the model can read")
    chat.question.fill("word " * 4000)
    expect(budget_of(chat)).to_have_text(re.compile("^About 5,000 tokens, and a question can have"))
    # An answer of the server replaces it, if it is for the text of now.
    asked = wait_sent(chat, peer, "count", 20_000)
    peer.tell({"type": "counted", "id": asked["id"], "tokens": 700, "room": 3000, "window": 4096})
    expect(budget_of(chat)).to_have_text("700 tokens of the 3,000 that a question can have")


def wait_sent(chat: ChatPage, peer: ScriptedPeer, kind: str, num_chars: int) -> dict[str, Any]:
    """The message of this type with so long a text, as soon as the page has sent it."""
    for _ in range(100):
        for message in peer.sent(kind):
            if len(message["text"]) == num_chars:
                return message
        chat.page.wait_for_timeout(50)
    raise AssertionError(f"no {kind} of {num_chars} characters")


TYPING = """(input) => {
  const durations = [];
  input.addEventListener('beforeinput', () => {
    const start = performance.now();
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => durations.push(performance.now() - start);
      channel.port2.postMessage(null);
    });
  });
  window.typed = durations;
}"""
"""Times from a key to the end of the frame that shows it."""


def test_typing_stays_quick_in_a_long_text(open_chat: OpenChat) -> None:
    """Pasted, as lines are: with many more of them it is the browser's own box that is slow. So it
    is what the page adds that is measured, against a box of the same looks that nothing listens
    to."""
    chat = open_chat(permissions=["clipboard-read", "clipboard-write"])
    text = (("A 多 word and 数字 123, " * 16) + "\n") * 600
    assert len(text.encode()) > 200_000
    chat.page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
    ours_ms = time_of_a_key(chat.page, chat.question)
    expect(chat.question).to_have_value(text + "x" * 9)
    chat.page.evaluate(
        """() => { const other = document.querySelector('#question').cloneNode();
             other.id = 'other';
             document.querySelector('#question').after(other); }"""
    )
    plain_ms = time_of_a_key(chat.page, chat.page.locator("#other"))
    assert ours_ms < 4 * plain_ms + 50


def time_of_a_key(page: Page, box: Locator) -> float:
    """The median of nine keys, after a paste."""
    box.focus()
    box.evaluate(TYPING)
    page.keyboard.press("Control+v")
    for _ in range(9):
        page.keyboard.press("x")
    page.wait_for_function("() => window.typed.length === 10")
    typed: list[float] = page.evaluate("() => window.typed.slice(1)")
    return median(typed)
