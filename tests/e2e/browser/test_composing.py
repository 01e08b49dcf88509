"""Input methods: what takes a candidate, or leaves one, sends no question and stops no answer."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.ime import Ime
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening
from tests.support.cases import case

PLAY = """(input, event) => {
  const [, name, rest] = /^(\\w+)\\s*(.*)$/.exec(event);
  const text = /"(.*)"/.exec(rest)?.[1];
  const dispatch = (event) => { input.dispatchEvent(event); return event.defaultPrevented; };
  const bubbles = {bubbles: true, cancelable: true};
  if (name === 'focus') { input.focus(); return false; }
  if (name === 'input') {
    input.value = text;
    return dispatch(new InputEvent('input', bubbles));
  }
  if (name === 'keydown') {
    const pattern = /key:"(\\w+)", isComposing:(\\w+), keyCode:(\\d+)/;
    const [, key, isComposing, keyCode] = pattern.exec(rest);
    return dispatch(new KeyboardEvent('keydown',
      {key, isComposing: isComposing === 'true', keyCode: Number(keyCode), ...bubbles}));
  }
  return dispatch(new CompositionEvent(name, {data: text ?? '', ...bubbles}));
}"""
"""Plays one event of a case; whether its default was prevented."""


def sent(peer: ScriptedPeer) -> list[str]:
    return [message["text"] for message in peer.sent("ask")]


@pytest.fixture
def peer() -> ScriptedPeer:
    peer = ScriptedPeer()
    peer.answer([*opening(), *deltas("Yes."), finish()])
    return peer


def test_ime_01(open_chat: OpenChat, peer: ScriptedPeer) -> None:
    """The case's own events, one by one."""
    ime = case("IME-01")
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    *events, last = ime["input"]["events"]
    for event in events:
        prevented = chat.question.evaluate(PLAY, event)
        assert not prevented, event
    expect(chat.questions).to_have_count(0)
    assert sent(peer) == []
    assert chat.question.evaluate(PLAY, last)
    assert chat.wait_end() == "Yes."
    assert sent(peer) == ime["expect"]["sent"]


def test_the_enter_that_safari_tells_after_a_composition_never_sends(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    chat = open_chat(before=peer.attach_to)
    for event in ("focus", "compositionstart", "compositionend", 'input value="分页"'):
        chat.question.evaluate(PLAY, event)
    late = 'keydown {key:"Enter", isComposing:false, keyCode:229}'
    assert not chat.question.evaluate(PLAY, late)
    expect(chat.question).to_have_value("分页")
    expect(chat.questions).to_have_count(0)


@pytest.mark.parametrize("key", ["Enter", " ", "2"])
def test_the_key_that_takes_a_candidate_never_sends(
    open_chat: OpenChat, peer: ScriptedPeer, key: str
) -> None:
    """By Chromium's own input method: pinyin, a candidate, and only then a question."""
    chat = open_chat(before=peer.attach_to)
    chat.question.focus()
    with Ime(chat.page) as ime:
        ime.compose("fenye")
        expect(chat.question).to_have_value("fenye")
        ime.choose("分页", key)
        expect(chat.question).to_have_value("分页")
        ime.compose("shi")
        ime.choose("是什么", key)
    expect(chat.question).to_have_value("分页是什么")
    expect(chat.questions).to_have_count(0)
    chat.page.keyboard.press("Shift+Enter")
    expect(chat.question).to_have_value("分页是什么\n")
    chat.page.keyboard.press("Enter")
    assert chat.wait_end() == "Yes."
    assert sent(peer) == ["分页是什么"]


def test_escape_in_a_composition_does_not_stop_the_answer(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("Still")])
    chat.ask()
    chat.wait_text(5)
    with Ime(chat.page) as ime:
        ime.compose("fen")
        expect(chat.question).to_have_value("fen")
        ime.cancel()
    expect(chat.question).to_have_value("")
    assert peer.sent("cancel") == []
    chat.page.keyboard.press("Escape")
    expect(chat.page.locator(".stop")).to_be_disabled()
    assert len(peer.sent("cancel")) == 1


def test_a_composition_that_is_left_does_not_bar_the_next_question(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    chat = open_chat(before=peer.attach_to)
    chat.question.focus()
    with Ime(chat.page) as ime:
        ime.compose("fen")
        chat.page.locator(".search-input").click()
    expect(chat.questions).to_have_count(0)
    chat.question.fill("分页")
    chat.question.press("Enter")
    assert chat.wait_end() == "Yes."
    assert sent(peer) == ["分页"]
