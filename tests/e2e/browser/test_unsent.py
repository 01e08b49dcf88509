"""Questions that the server has not taken, in conversations that were left: the page alone knows
them, and leads back to each."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, wait_until
from tests.e2e.browser.test_connection_bar import Outage
from tests.e2e.browser.test_lost_receipts import answered, keep_stored, press

EDITS = "Object.keys(localStorage).filter((key) => key.startsWith('lectern.edit.'))"
PENDING, REFUSED = "Waits until the server takes it", "The server did not take it"


def unsent(chat: ChatPage) -> Locator:
    return chat.page.locator(".unsent button.conversation")


def ask_stored(chat: ChatPage, peer: ScriptedPeer) -> str:
    """The address of a stored conversation, in which Question 1 is answered by One."""
    peer.answer(answered("One"))
    chat.ask("Question 1")
    chat.wait_end()
    keep_stored(chat.page, {"text": "One", "state": "finished"})
    return chat.page.url


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
    address = ask_stored(chat, peer)
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


def refuse_one(chat: ChatPage, peer: ScriptedPeer, text: str) -> None:
    """A question that is refused where it stands."""
    peer.ignore()
    num_sent = len(peer.sent("ask"))
    chat.ask(text)
    wait_until(chat.page, lambda: len(peer.sent("ask")) > num_sent)
    refuse(peer, str(peer.sent("ask")[-1]["id"]))
    expect(chat.answer.locator(".notice-red")).to_contain_text("Too many people are asking")


def discard(chat: ChatPage) -> None:
    """The last answer's question, which was refused."""
    press("Discard")(chat)
    dialog = chat.page.get_by_role("alertdialog")
    dialog.get_by_role("button", name="Discard").click()
    expect(dialog).to_have_count(0)


def test_one_that_was_refused_outlives_a_reload(chat: ChatPage, peer: ScriptedPeer) -> None:
    """Who is told that too many people ask may well load the page again."""
    refuse_one(chat, peer, "Question 1")
    for _ in range(2):
        chat.page.reload()
        expect(chat.questions).to_have_text(["Question 1"])
        expect(chat.answer.locator(".notice-red")).to_contain_text("Too many people are asking")
    peer.answer(answered("Answered"))
    press("Retry")(chat)
    assert chat.wait_end() == "Answered"
    keep_stored(chat.page, {"text": "Answered", "state": "finished"})
    chat.page.reload()
    assert chat.wait_end() == "Answered"
    expect(chat.questions).to_have_count(1)
    leave(chat)
    expect(chat.page.locator(".unsent")).to_be_hidden()


def test_those_that_were_refused_stand_where_they_were_asked(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    address = ask_stored(chat, peer)
    refuse_one(chat, peer, "Question 2")
    leave(chat)
    refuse_one(chat, peer, "Question 3")
    chat.page.reload()
    expect(chat.questions).to_have_text(["Question 3"])
    leave(chat)
    expect(unsent(chat).locator(".conversation-title")).to_have_text(["Question 3"])
    chat.page.goto(address)
    expect(chat.questions).to_have_text(["Question 1", "Question 2"])
    expect(chat.answer.locator(".notice-red")).to_contain_text("Too many people are asking")


def test_one_that_is_refused_while_its_conversation_is_not_shown_is_found_there(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    address = ask_stored(chat, peer)
    ask_and_leave(chat, peer, "Question 2")
    chat.page.reload()
    wait_until(chat.page, lambda: len(peer.sent("ask")) == 3)  # sent again by the new page
    expect(chat.questions).to_have_count(0)
    refuse(peer, str(peer.sent("ask")[-1]["id"]))
    chat.page.evaluate("history.back()")
    expect(chat.page).to_have_url(address)
    expect(chat.questions).to_have_text(["Question 1", "Question 2"])
    expect(chat.answer.locator(".notice-red")).to_contain_text("Too many people are asking")


def test_a_shown_one_can_be_discarded(chat: ChatPage, peer: ScriptedPeer) -> None:
    refuse_one(chat, peer, "Question 1")
    press("Discard")(chat)
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Cancel").click()
    expect(chat.answer.get_by_role("button", name="Discard")).to_be_focused()
    discard(chat)
    expect(chat.questions).to_have_count(0)
    expect(chat.page.locator(".welcome")).to_be_visible()
    expect(chat.question).to_be_focused()
    chat.page.reload()
    chat.page.wait_for_selector("html.is-ready")
    expect(chat.questions).to_have_count(0)
    expect(chat.page.locator(".unsent")).to_be_hidden()


def test_what_was_asked_behind_one_that_is_discarded_stays(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer(answered("One"))
    chat.ask("Question 1")
    chat.wait_end()
    refuse_one(chat, peer, "Question 2")
    peer.answer(answered("Three"))
    chat.ask("Question 3")
    expect(chat.questions).to_have_text(["Question 1", "Question 2", "Question 3"])
    expect(chat.answers.last.locator(".prose")).to_have_text("Three")
    chat.answers.nth(1).get_by_role("button", name="Discard").click()
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Discard").click()
    expect(chat.questions).to_have_text(["Question 1", "Question 3"])
    expect(chat.answers.locator(".prose")).to_have_text(["One", "Three"])


def test_what_it_is_being_changed_to_is_kept(chat: ChatPage, peer: ScriptedPeer) -> None:
    box = chat.page.get_by_role("textbox", name="The question in other words")
    refuse_one(chat, peer, "Question 1")
    chat.page.get_by_role("button", name="Edit the question").click()
    box.fill("Question 1, but shorter")
    leave(chat)
    unsent(chat).click()
    expect(box).to_have_value("Question 1, but shorter")
    chat.page.reload()
    expect(box).to_have_value("Question 1, but shorter")
    peer.answer(answered("Answered"))
    box.press("Enter")
    assert chat.wait_end() == "Answered"
    assert peer.sent("ask")[-1]["text"] == "Question 1, but shorter"
    assert chat.page.evaluate(EDITS) == []


def test_what_waits_for_the_network_says_so_at_once_when_it_is_opened_again(
    open_chat: OpenChat,
) -> None:
    """It seemed to be sent, for as long as a short pause of the connection is not told."""
    peer = Outage()
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    peer.is_gone = True
    peer.close(1001)
    expect(chat.page.locator("#connection")).to_be_visible()
    chat.ask("Question 1")
    waits = chat.answer.locator(".waiting")
    expect(waits).to_contain_text("Not sent yet: there is no connection.")
    leave(chat)
    told = chat.page.evaluate(
        """async () => {
          document.querySelector('.unsent button.conversation').click();
          for (let n = 0; n < 2; n += 1) await new Promise(requestAnimationFrame);
          return document.querySelector('.answer .waiting').textContent;
        }"""
    )
    assert "Not sent yet: there is no connection." in told


def test_one_that_is_discarded_in_the_list_does_not_come_back(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    refuse_one(chat, peer, "Question 1")
    chat.page.get_by_role("button", name="Edit the question").click()
    chat.page.get_by_role("textbox", name="The question in other words").fill("Other words")
    leave(chat)
    chat.page.get_by_role("button", name="Discard “Question 1”").click()
    chat.page.get_by_role("alertdialog").get_by_role("button", name="Discard").click()
    expect(unsent(chat)).to_have_count(0)
    assert chat.page.evaluate(EDITS) == []
    chat.page.reload()
    chat.page.wait_for_selector("html.is-ready")
    expect(chat.questions).to_have_count(0)
    expect(unsent(chat)).to_have_count(0)
