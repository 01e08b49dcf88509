"""How an answer ended, in words and colour, and what can be done about it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from engine.api import FinishReason, FinishType
from server.app.records import is_continuable, state_of
from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.scripted_peer import (
    CONTEXT,
    USAGE,
    Event,
    ScriptedPeer,
    deltas,
    finish,
    opening,
    passage,
)
from tests.support.cases import case as load_case

TEXT = "Some text."


@dataclass(frozen=True, slots=True)
class End:
    """What the page says of an end: the tone, words in both languages, and the buttons."""

    tone: str
    en: str
    zh: str
    ways: tuple[str, ...] = ()


ENDS = {
    FinishType.EOS: End("done", "Complete", "回答完整"),
    FinishType.STOP_TOKEN: End("done", "Complete", "回答完整"),
    FinishType.STOP_STRING: End("done", r"the stop sequence “\n\nQ:”", r"停止序列“\n\nQ:”"),
    FinishType.MAX_TOKENS: End(
        "amber", "length limit of 512 tokens", "512 个词元的长度上限", ("continue", "raise")
    ),
    FinishType.CONTEXT_WINDOW: End(
        "amber", "window of 4,096 tokens is full", "4,096 词元窗口已满", ("carry", "new")
    ),
    FinishType.KV_CAPACITY: End(
        "amber", "memory can hold no more", "缓存已放不下", ("carry", "new")
    ),
    FinishType.TOOL_CALLS: End("amber", "asked for a tool", "想调用工具", ("retry",)),
    FinishType.CANCELLED: End("quiet", "You stopped this answer", "你停止了", ("continue",)),
    FinishType.CLIENT_GONE: End("amber", "connection was lost", "连接已断开", ("continue",)),
    FinishType.SLOW_CLIENT: End("amber", "connection was lost", "连接已断开", ("continue",)),
    FinishType.DEADLINE: End("amber", "the time limit", "时间限制", ("continue",)),
    FinishType.SHUTDOWN: End("amber", "was shut down", "服务器已关闭", ("continue",)),
    FinishType.ERROR: End("red", "Something went wrong", "服务器出错了", ("continue", "retry")),
}
ALERTS = ("amber", "red")

DESCRIBE = """async ([message, events]) => {
  const main = document.querySelector('script[type=module]').src;
  const load = (path) => import(new URL(path, main));
  const { Answer } = await load('./chat/messages.js');
  const { describeFinish } = await load('./answer/finish.js');
  const answer = message ? Answer.fromHistory(message) : new Answer();
  for (const event of events) answer.apply(event);
  return describeFinish(answer);
}"""


def describe(page: Page, *events: Event, stored: Event | None = None) -> Event:
    """What answer/finish.js says of an answer that was streamed, or stored."""
    told: Event = page.evaluate(DESCRIBE, [stored, list(events)])
    return told


def end_event(kind: FinishType) -> Event:
    """The event that ends an answer with text so, as the server tells it."""
    if kind is FinishType.ERROR:
        return {"type": "error", "code": "internal", "message": "Failed.", "retryable": True}
    matched = {"matched": "\n\nQ:"} if kind is FinishType.STOP_STRING else {}
    can_continue = is_continuable(kind, TEXT, USAGE, CONTEXT["window"])
    end = finish(kind.value, can_continue=can_continue, **matched)
    return {**end, "finish_reason": kind.reason.value}


def stored_answer(kind: FinishType) -> Event:
    """The same answer as the API tells it later."""
    end = end_event(kind)
    detail = end.get("finish_detail") or {**end, "type": kind.value}
    return {
        "id": "a1",
        "parent": "q1",
        "role": "assistant",
        "text": TEXT,
        "state": state_of(kind).value,
        "model": "peer",
        "max_tokens": 512,
        "finish_reason": kind.reason.value,
        "finish_detail": detail,
        "usage": end.get("usage"),
        "timing": end.get("timing"),
        "context": {**CONTEXT, "passages_dropped": 0},
        "can_continue": is_continuable(kind, TEXT, end.get("usage"), CONTEXT["window"]),
    }


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_end_of_the_engine_has_its_words_tone_and_ways_on(
    chat: ChatPage, peer: ScriptedPeer, language: str
) -> None:
    assert set(ENDS) == set(FinishType)
    if language == "zh":
        chat.page.get_by_role("button", name="中文").click()
        expect(chat.page.locator("html")).to_have_attribute("lang", "zh-CN")
    for kind, end in ENDS.items():
        peer.answer([*opening(passage(1)), *deltas(TEXT, 20), end_event(kind)])
        chat.ask(f"How does {kind} end?")
        answer = chat.answer
        expect(answer).to_have_attribute("data-state", state_of(kind).value)
        words = end.en if language == "en" else end.zh
        if end.tone in ALERTS:
            expect(answer.locator(f".notice-{end.tone} .notice-text")).to_contain_text(words)
        else:
            expect(answer.locator(f".finish-{end.tone}")).to_contain_text(words)
            expect(answer.locator(".notice")).to_have_count(0)
        shown = answer.locator(".action").evaluate_all("all => all.map((b) => b.dataset.action)")
        assert tuple(shown) == end.ways, kind
        expect(chat.status).to_contain_text(words)


def test_an_end_is_told_alike_streamed_and_stored(chat: ChatPage) -> None:
    accepted = {"type": "accepted", "message": "a1"}
    for kind in FinishType:
        streamed = [accepted, *opening(), *deltas(TEXT, 20), end_event(kind)]
        live = describe(chat.page, *streamed)
        assert live == describe(chat.page, stored=stored_answer(kind)), kind
        assert live["tone"] == ENDS[kind].tone
        assert tuple(live["actions"]) == ENDS[kind].ways


@pytest.mark.parametrize("kind", [FinishType.EOS, FinishType.MAX_TOKENS, FinishType.SHUTDOWN])
def test_what_stands_below_is_the_same_after_a_reload(
    chat: ChatPage, peer: ScriptedPeer, kind: FinishType
) -> None:
    peer.answer([*opening(), *deltas(TEXT), end_event(kind)])
    chat.ask("What?")
    chat.wait_end(state_of(kind))
    foot = chat.answer.locator(".answer-tail")
    live = foot.inner_text()
    question = {"id": "q1", "parent": None, "role": "user", "text": "What?", "state": "finished"}
    messages = [question, stored_answer(kind)]
    stored = {"id": "c1", "course": None, "active_run": None, "messages": messages}
    chat.page.route("**/api/conversations/c1*", lambda route: route.fulfill(json=stored))
    chat.page.reload()
    chat.wait_end(state_of(kind))
    assert foot.inner_text() == live


def test_an_end_that_the_page_does_not_know_gets_the_tone_of_its_reason(chat: ChatPage) -> None:
    ended, cut = "Ended: newer", "This answer is cut: newer"
    expected = {
        FinishReason.STOP: ("done", ended, []),
        FinishReason.LENGTH: ("amber", cut, ["continue"]),
        FinishReason.ABORT: ("amber", cut, ["continue"]),
        FinishReason.TOOL_CALLS: ("quiet", ended, []),
    }
    for reason, (tone, words, ways) in expected.items():
        end = {**finish("newer", can_continue=True), "finish_reason": reason.value}
        told = describe(chat.page, *opening(), *deltas(TEXT, 20), end)
        assert told == {"tone": tone, "text": words, "actions": ways}, reason


def test_a_limit_that_fills_the_window_leads_elsewhere(chat: ChatPage) -> None:
    full = {**USAGE, "total_tokens": CONTEXT["window"]}
    end = {**finish("max_tokens"), "usage": full}
    accepted = {"type": "accepted", "message": "a1"}
    told = describe(chat.page, accepted, *opening(), *deltas(TEXT, 20), end)
    assert told["actions"] == ["carry", "new"]


def test_an_error_says_its_code_and_how_long_to_wait(chat: ChatPage, peer: ScriptedPeer) -> None:
    error = {"type": "error", "code": "queue_full", "message": "", "retryable": True}
    peer.answer([{**error, "retry_after_ms": 41_000}])
    chat.ask("What?")
    notice = chat.answer.locator(".notice-red")
    expect(notice).to_contain_text("Suggested wait: about 45 s.")
    expect(notice.locator(".notice-code")).to_have_text("queue_full")
    expect(notice.get_by_role("button")).to_have_text(["Retry"])
    peer.answer([{"type": "error", "code": "prompt_too_long", "message": "", "retryable": False}])
    chat.ask("What else?")
    expect(chat.answer.locator(".notice-red")).to_contain_text("too long for the model’s window")
    expect(chat.answer.get_by_role("button")).to_have_count(0)


def test_a_cut_answer_carries_a_warning_and_a_whole_one_does_not(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    case = load_case("FIN-01")
    pieces = [bytes.fromhex(token["hex"]).decode() for token in case["input"]["stub_emits"]]
    limit = case["input"]["request"]["max_tokens"]
    told = [{"type": "delta", "text": piece} for piece in pieces]
    retrieval, context, start = opening(passage(1))
    start["max_tokens"] = limit
    peer.answer([retrieval, context, start, *told[:limit], finish("max_tokens", can_continue=True)])
    chat.ask("Count to three.")
    assert chat.wait_end() in case["expect"]["text_any_of"]
    expect(chat.answer.locator(".notice-amber")).to_contain_text(f"limit of {limit} tokens")
    peer.answer([*opening(passage(1)), *told, finish("eos")])
    chat.ask("Count to three.")
    assert chat.wait_end() == "".join(pieces)
    expect(chat.answer.locator(".notice")).to_have_count(0)
