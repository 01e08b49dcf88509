"""Questions that the server has not taken, in conversations that were left: the page alone knows
them, and leads back to each."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, wait_until
from tests.e2e.browser.test_lost_receipts import answered, keep_stored, press

PENDING, REFUSED = "Waits until the server takes it", "The server did not take it"


def unsent(chat: ChatPage) -> Locator:
    return chat.page.locator(".unsent button.conversation")


def leave(chat: ChatPage) -> None:
    """For a new conversation."""
    chat.page.locator("a.new-conversation").click()
    expect(chat.questions).to_have_count(0)


def ask_and_leave(chat: ChatPage, peer: ScriptedPeer, text: str) -> str:
    """The id of a question that is on its way."""
    peer.ignore()
    num_sent = len(peer.sent("ask"))
    chat.ask(text)
    wait_until(chat.page, lambda: len(peer.sent("ask")) > num_sent)
    leave(chat)
    return str(peer.sent("ask")[-1]["id"])


def refuse(peer: ScriptedPeer, question: str) -> None:
    error = {"type": "error", "code": "queue_full", "message": "full", "retryable": True}
    peer.tell({**error, "id": question})


def test_one_on_its_way_is_listed_until_it_is_taken(chat: ChatPage, peer: ScriptedPeer) -> None:
    ask_and_leave(chat, peer, "Question 1")
    ask_and_leave(chat, peer, "Question 2")
    expect(unsent(chat).locator(".conversation-title")).to_have_text(["Question 2", "Question 1"])
    expect(unsent(chat).locator(".conversation-about")).to_have_text([PENDING] * 2)
    unsent(chat).last.click()
    expect(chat.questions).to_have_text(["Question 1"])
    expect(chat.question).to_be_focused()
    expect(unsent(chat)).to_have_count(1)
    first, second = peer.sent("ask")
    for question in (second, first):
        peer.answer(answered("Answered"))
        peer.accept(question)
    assert chat.wait_end() == "Answered"
    expect(chat.page.locator(".unsent")).to_be_hidden()


def test_what_a_reload_left_on_its_way_is_listed(chat: ChatPage, peer: ScriptedPeer) -> None:
    """Only the first of them was shown, the others with each new conversation one."""
    texts = ["Question 1", "Question 2", "Question 3"]
    for text in texts:
        ask_and_leave(chat, peer, text)
    chat.page.reload()
    expect(chat.questions).to_have_text(texts[:1])
    expect(unsent(chat).locator(".conversation-title")).to_have_text(texts[:0:-1])
    unsent(chat).first.click()
    expect(chat.questions).to_have_text(texts[2:])
    expect(unsent(chat).locator(".conversation-title")).to_have_text(texts[1::-1])


def test_one_that_was_refused_meanwhile_is_asked_again(chat: ChatPage, peer: ScriptedPeer) -> None:
    question = ask_and_leave(chat, peer, "Question 1")
    refuse(peer, question)
    expect(unsent(chat).locator(".conversation-about")).to_have_text([REFUSED])
    chat.page.locator("#language").click()
    expect(unsent(chat).locator(".conversation-about")).to_have_text(["服务器未接受"])
    chat.page.locator("#language").click()
    unsent(chat).click()
    expect(chat.questions).to_have_text(["Question 1"])
    expect(chat.answer.locator(".notice-red")).to_contain_text("Too many people are asking")
    peer.answer(answered("Answered"))
    press("Retry")(chat)
    assert chat.wait_end() == "Answered"
    leave(chat)
    expect(unsent(chat)).to_have_count(0)


def test_one_that_was_refused_can_be_discarded(chat: ChatPage, peer: ScriptedPeer) -> None:
    questions = [ask_and_leave(chat, peer, text) for text in ("Question 1", "Question 2")]
    refuse(peer, questions[0])
    discard = chat.page.get_by_role("button", name="Discard “Question 1”")
    discard.focus()
    discard.press("Enter")
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Cancel").click()
    expect(discard).to_be_focused()
    discard.press("Enter")
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Discard").click()
    expect(unsent(chat).locator(".conversation-title")).to_have_text(["Question 2"])
    expect(chat.page.locator("a.new-conversation")).to_be_focused()
    expect(chat.page.get_by_role("button", name="Discard")).to_have_count(0)


def test_one_refused_in_a_stored_conversation_stands_there_again(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    """It was gone when that was opened again: the server had not stored it."""
    peer.answer(answered("One"))
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One", "state": "finished"})
    address = chat.page.url
    question = ask_and_leave(chat, peer, "Question 2")
    refuse(peer, question)
    chat.page.evaluate("history.back()")
    expect(chat.page).to_have_url(address)
    expect(chat.questions).to_have_text(["Question 1", "Question 2"])
    peer.answer(answered("Two"))
    press("Retry")(chat)
    assert chat.wait_end() == "Two"


def test_the_list_is_in_a_phone_s_drawer(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to, viewport={"width": 320, "height": 600})
    peer.ignore()
    for number in range(9):
        chat.ask(f"A question of some length, that has the number {number}, and is not taken")
        chat.page.locator("a.topbar-new").click()
    chat.page.locator("#menu").click()
    expect(unsent(chat)).to_have_count(9)
    box = chat.page.locator(".unsent").bounding_box()
    assert box is not None
    assert box["height"] < 200
    assert not chat.is_wider_than_screen()
    unsent(chat).last.scroll_into_view_if_needed()
    unsent(chat).last.click()
    expect(chat.questions).to_contain_text(["number 0"])
    expect(chat.page.locator("#sidebar")).not_to_have_class("is-open")
