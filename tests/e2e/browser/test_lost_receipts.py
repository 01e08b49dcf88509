"""What was on its way when the page or its connection went: it arrives once, and is told once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, WebSocketRoute, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.kept_routes import LONG_QUESTION
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, wait_until


def answered(text: str) -> list[dict[str, Any]]:
    return [*opening(), *deltas(text), finish()]


def keep_stored(page: Page, *answers: dict[str, Any], active_run: str | None = None) -> None:
    """What a reload finds stored: question and answer in turn, as the scripted peer names them."""
    messages: list[dict[str, Any]] = []
    for n, answer in enumerate(answers, 1):
        parent = messages[-1]["id"] if messages else None
        question = {"id": f"q{n}", "parent": parent, "role": "user", "text": f"Question {n}"}
        told = {"id": f"a{n}", "parent": f"q{n}", "role": "assistant", "state": "finished"}
        messages += [question, {**told, "finish_detail": {"type": "eos"}, **answer}]
    conversation = {"id": "c1", "course": None, "title": "", "messages": messages}
    stored = {**conversation, "active_run": active_run}
    page.route("**/api/conversations/c1*", lambda route: route.fulfill(json=stored))


def test_a_question_whose_receipt_was_lost_is_not_asked_twice(open_chat: OpenChat) -> None:
    """The server has stored the question, the page has not heard of it and sends it again."""
    deaf = [False]

    def connect(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        server.on_message(lambda message: None if deaf[0] else route.send(message))

    chat = open_chat(before=lambda page: page.route_web_socket("**/ws/v1", connect))
    chat.ask()
    chat.wait_end()
    deaf[0] = True
    chat.ask(LONG_QUESTION)
    chat.wait_stored("messages.length === 4")
    deaf[0] = False
    chat.page.reload()
    assert chat.wait_end() == LONG_QUESTION
    expect(chat.questions).to_have_text([QUESTION, LONG_QUESTION])
    expect(chat.answers).to_have_count(2)


CUT = {"finish_reason": "length", "finish_detail": {"type": "max_tokens"}, "can_continue": True}


def edit(chat: ChatPage) -> None:
    chat.page.get_by_role("button", name="Edit the question").click()
    chat.page.locator(".question-input").fill("Other")
    chat.page.locator(".question-input").press("Enter")


def press(name: str) -> Callable[[ChatPage], None]:
    return lambda chat: chat.answer.get_by_role("button", name=name, exact=True).click()


def wait_sent(chat: ChatPage, peer: ScriptedPeer, kind: str, count: int) -> None:
    """The page is ready before its connection is, with which it sends again."""
    wait_until(chat.page, lambda: len(peer.sent(kind)) == count)


def test_what_was_on_its_way_at_a_reload_arrives_once(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One", **CUT})
    continued = {**opening()[-1], "continued": True}
    more = [continued, *deltas(" and two."), finish()]
    for kind, act, events, text, num_questions in (
        ("continue", press("Continue"), more, "One and two.", 1),
        ("regenerate", press("Regenerate"), answered("Again."), "Again.", 1),
        ("edit", edit, answered("To the other."), "To the other.", 1),
        ("ask", lambda chat: chat.ask("Question 2"), answered("Next."), "Next.", 2),
    ):
        num_sent = len(peer.sent(kind))
        peer.ignore()
        act(chat)
        expect(chat.answer).to_have_attribute("data-state", "running")
        chat.page.reload()
        expect(chat.answer).to_have_attribute("data-state", "running")
        expect(chat.page.locator("#question")).to_be_visible()
        chat.page.wait_for_function("() => document.documentElement.matches('.is-ready')")
        wait_sent(chat, peer, kind, num_sent + 2)
        first, again = peer.sent(kind)[-2:]
        assert first == again, kind
        peer.answer(events)
        peer.accept(again)
        assert chat.wait_end() == text, kind
        expect(chat.answers).to_have_count(num_questions)
        assert chat.page.evaluate("sessionStorage.getItem('lectern.outbox')") is None
        # What is stored is as before: the next one begins at the same place.
        chat.page.reload()
        expect(chat.answer.locator(".prose")).to_have_text("One")
        expect(chat.page.locator("#model-note")).to_contain_text("peer")


def reload_with_unanswered(chat: ChatPage) -> None:
    chat.page.wait_for_function("() => sessionStorage.getItem('lectern.outbox') !== null")
    chat.page.reload()
    chat.page.wait_for_selector("html.is-ready")


def test_an_answer_that_ended_before_its_receipt_came_is_told_once(open_chat: OpenChat) -> None:
    """The server restarted meanwhile: it tells what it has stored, to a page that has read it."""
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer(answered("One"))
    chat.ask("Question 1")
    chat.wait_end()
    peer.ignore()
    chat.ask("Question 2")
    keep_stored(chat.page, {"text": "One"}, {"text": "Two.", "thinking": "Hm."})
    reload_with_unanswered(chat)
    again = peer.sent("ask")[-1]
    peer.answer([{"type": "thinking", "text": "Hm."}, *deltas("Two."), finish()])
    peer.accept(again)
    assert chat.wait_end() == "Two."
    expect(chat.questions).to_have_text(["Question 1", "Question 2"])
    expect(chat.answer.locator(".thinking-text")).to_have_text("Hm.")


def test_a_continuation_begins_where_the_server_says(open_chat: OpenChat) -> None:
    """The page holds more than the answer had when the part began: that part itself, or one that
    was taken back elsewhere. The server counts characters, the page UTF-16 units."""
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("😀ne"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    peer.ignore()
    press("Continue")(chat)
    keep_stored(chat.page, {"text": "😀ne and two", "seams": [3], **CUT})
    reload_with_unanswered(chat)
    start = {**opening()[-1], "continued": True, "base_chars": 3, "base_thinking_chars": 0}
    peer.answer([start, *deltas(" and two"), finish("max_tokens", can_continue=True)])
    peer.accept(peer.sent("continue")[-1])
    assert chat.wait_end() == "😀ne and two"
    expect(chat.answer.locator(".seam")).to_have_count(1)
    peer.answer([start, *deltas(" or more"), finish()])
    press("Continue")(chat)
    assert chat.wait_end() == "😀ne or more"
    expect(chat.answer.locator(".seam")).to_have_count(1)


def test_what_changed_during_a_run_is_read_behind_it(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer(answered("One"))
    chat.ask("Question 1")
    chat.wait_end()
    peer.answer([*opening(), *deltas("Two")])
    chat.ask("Question 2")
    chat.wait_text(3)
    keep_stored(chat.page, {"text": "One, as it is now"}, {"text": "Two"})
    for title in ("A title", "A title"):
        peer.tell({"type": "changed", "conversation": "c1", "title": title})
    peer.send(finish())
    expect(chat.answers.first.locator(".prose")).to_have_text("One, as it is now")
    assert chat.wait_end() == "Two"


def test_an_undo_holds_every_way_on_until_it_is_answered(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One and two"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One and two", "seams": [3], "can_undo": True, **CUT})
    chat.page.reload()
    peer.ignore()
    tail = chat.answer.locator(".answer-tail")
    names = ("Continue", "Regenerate", "Undo the continuation")
    ways = [tail.get_by_role("button", name=name, exact=True) for name in names]
    ways[-1].click()
    for way in ways:
        expect(way).to_be_disabled()
    # Nor does it end by what is read meanwhile.
    keep_stored(chat.page, {"text": "One, and two", "seams": [3], "can_undo": True, **CUT})
    for title in ("A title", "A title"):
        peer.tell({"type": "changed", "conversation": "c1", "title": title})
    expect(chat.answer.locator(".prose")).to_have_text("One, and two")
    for way in ways:
        expect(way).to_be_disabled()
    [undo] = peer.sent("undo")
    peer.tell({"type": "error", "id": undo["id"], "code": "conversation_busy", "message": ""})
    expect(chat.page.locator("#problem")).to_be_visible()
    for way in ways:
        expect(way).to_be_enabled()


def test_a_stop_without_a_connection_is_sent_with_the_next_one(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    peer.ends_when_cancelled = True
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One")])
    chat.ask("Question 1")
    chat.wait_text(3)
    peer.is_deaf = True
    peer.close(1011)
    chat.page.get_by_role("button", name="Stop the answer").click()
    expect(chat.answer).to_have_attribute("data-state", "running")
    assert peer.sent("cancel") == []
    peer.is_deaf = False
    peer.close(1011)
    assert chat.wait_end("stopped") == "One"


def test_half_a_character_is_sent_as_what_stands_for_one(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer(answered("One"))
    chat.question.evaluate(
        "(box) => { box.value = 'half \\ud83d'; box.dispatchEvent(new Event('input')); }"
    )
    chat.question.press("Enter")
    chat.wait_end()
    assert [message["text"] for message in peer.sent("ask")] == ["half \ufffd"]
    expect(chat.questions).to_have_text(["half \ufffd"])


def test_an_undo_on_its_way_at_a_reload_is_done_once(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("One and two"), finish("max_tokens", can_continue=True)])
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One and two", "seams": [3], "can_undo": True, **CUT})
    chat.page.reload()
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    peer.ignore()
    chat.answer.locator(".answer-tail").get_by_role("button", name="Undo the continuation").click()
    chat.page.wait_for_function("() => sessionStorage.getItem('lectern.outbox') !== null")
    chat.page.reload()
    chat.page.wait_for_function("() => document.documentElement.matches('.is-ready')")
    expect(chat.answer.locator(".prose")).to_have_text("One and two")
    wait_sent(chat, peer, "undo", 2)
    first, again = peer.sent("undo")
    assert first == again
    before = {"id": "a1", "parent": "q1", "role": "assistant", "state": "finished", "text": "One"}
    peer.tell({"type": "done", "id": again["id"], "message": {**before, **CUT}})
    expect(chat.answer.locator(".prose")).to_have_text("One")
    expect(chat.answer.locator(".seam")).to_have_count(0)
    assert chat.page.evaluate("sessionStorage.getItem('lectern.outbox')") is None


def test_a_message_that_the_server_cannot_take_is_not_sent_for_ever(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.ignore()
    chat.ask("Question 1")
    expect(chat.answer).to_have_attribute("data-state", "running")
    chat.page.wait_for_function("() => sessionStorage.getItem('lectern.outbox') !== null")
    peer.close(1009)
    expect(chat.answer.locator(".notice-red")).to_be_visible()
    expect(chat.question).to_have_value("Question 1")
    chat.page.reload()
    expect(chat.question).to_have_value("Question 1")
    expect(chat.answers).to_have_count(0)
    wait_until(chat.page, lambda: len(peer.sent("hello")) == 2)
    assert len(peer.sent("ask")) == 1
