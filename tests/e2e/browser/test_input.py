"""Writing a question: input methods, line breaks, double submits, small screens, languages."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.chat_page import QUESTION
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening

COMPOSE = """(input) => {
  const enter = (options) => {
    const event = new KeyboardEvent('keydown',
      {key: 'Enter', bubbles: true, cancelable: true, ...options});
    input.dispatchEvent(event);
    return event.defaultPrevented;
  };
  input.focus();
  input.dispatchEvent(new CompositionEvent('compositionstart', {bubbles: true}));
  input.value = 'fenye';
  input.dispatchEvent(new InputEvent('input', {bubbles: true, isComposing: true}));
  const prevented = [enter({isComposing: true, keyCode: 229})];
  input.value = '分页';
  input.dispatchEvent(new CompositionEvent('compositionend', {bubbles: true, data: '分页'}));
  input.dispatchEvent(new InputEvent('input', {bubbles: true}));
  // Safari tells of the Enter that ends a composition after its end, with this code.
  prevented.push(enter({isComposing: false, keyCode: 229}));
  return {prevented, questions: document.querySelectorAll('.question').length,
    value: input.value};
}"""


def test_the_enter_that_ends_a_composition_never_sends(open_chat: OpenChat) -> None:
    chat = open_chat()
    seen = chat.question.evaluate(COMPOSE)
    assert seen == {"prevented": [False, False], "questions": 0, "value": "分页"}
    chat.question.press("Enter")
    expect(chat.questions).to_have_text(["分页"])
    chat.wait_end()
    expect(chat.questions).to_have_count(1)


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


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_has_no_sideways_scroll(open_chat: OpenChat, width: int) -> None:
    chat = open_chat(viewport={"width": width, "height": 700}, has_touch=True, is_mobile=True)
    assert not chat.is_wider_than_screen()
    # On a touch keyboard Enter breaks the line; the button sends.
    chat.question.fill(f"{QUESTION} {'unbroken' * 20} `{'code' * 30}`")
    chat.question.press("Enter")
    expect(chat.questions).to_have_count(0)
    chat.page.get_by_role("button", name="Send").tap()
    chat.wait_end()
    assert not chat.is_wider_than_screen()
    sidebar = chat.page.locator("#sidebar")
    expect(sidebar).to_be_hidden()
    chat.page.get_by_role("button", name="Open courses and conversations").tap()
    expect(sidebar).to_be_in_viewport()
    chat.page.keyboard.press("Escape")
    expect(sidebar).to_be_hidden()
    chat.answer.locator(".source summary").first.tap()
    chat.answer.locator(".source .link-button").first.tap()
    expect(chat.page.locator("#source-panel")).to_be_visible()
    assert not chat.is_wider_than_screen()


def test_the_language_switches_and_stays(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask()
    chat.wait_end()
    chat.page.get_by_role("button", name="中文").click()
    expect(chat.page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(chat.question).to_have_attribute("placeholder", "就这门课提问")
    expect(chat.answer.locator(".finish")).to_have_text("回答完整")
    expect(chat.answer.locator(".sources-title")).to_have_text("来源")
    chat.page.reload()
    expect(chat.page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(chat.answer.locator(".finish")).to_have_text("回答完整")
    chat.page.get_by_role("button", name="English").click()
    expect(chat.answer.locator(".finish")).to_have_text("Complete")


def test_the_browsers_language_is_taken(open_chat: OpenChat) -> None:
    chat = open_chat(locale="zh-CN")
    expect(chat.page.locator(".welcome-title")).to_have_text("想了解什么？")
    expect(chat.page.locator(".suggestion").first).to_have_text(re.compile(r"[\u4e00-\u9fff]"))


def test_the_theme_follows_the_system_and_the_choice(open_chat: OpenChat) -> None:
    chat = open_chat(color_scheme="dark")
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = chat.page.evaluate(background)
    chat.page.locator("#theme").click()
    light = chat.page.evaluate(background)
    assert light != dark
    chat.page.reload()
    assert chat.page.evaluate(background) == light


def test_the_keyboard_reaches_everything(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.page.locator(".brand").focus()
    chat.page.keyboard.press("Shift+Tab")
    expect(chat.page.locator(".skip")).to_be_focused()
    chat.page.keyboard.press("Enter")
    expect(chat.question).to_be_focused()
    chat.question.press_sequentially(QUESTION)
    chat.page.keyboard.press("Enter")
    chat.wait_end()
    chat.answer.locator(".source summary").first.focus()
    chat.page.keyboard.press("Enter")
    chat.page.keyboard.press("Tab")
    chat.page.keyboard.press("Enter")
    expect(chat.page.locator("#source-panel .panel-close")).to_be_focused()
    chat.page.keyboard.press("Tab")
    title = chat.page.locator("#panel-title").inner_text()
    expect(chat.page.get_by_role("region", name=title)).to_be_focused()
    chat.page.keyboard.press("Escape")
    expect(chat.answer.locator(".source .link-button").first).to_be_focused()
