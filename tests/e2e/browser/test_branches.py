"""Questions in other words and answers made again: branches, the switcher, and what is sent."""

from __future__ import annotations

import random
import re
from typing import Any

from playwright.sync_api import Locator, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening

Tree = list[dict[str, Any]]

OTHER = "Where are office hours?"

MODULE = "document.querySelector('link[rel=modulepreload][href$=\"/chat/tree.js\"]').href"

LOOK_AT_TREE = (
    """async ([messages, seed]) => {
  const { MessageTree } = await import("""
    + MODULE
    + """);
  const tree = MessageTree.of(messages);
  const leaves = messages.filter(({ id }) => !messages.some(({ parent }) => parent === id));
  const forks = [null, ...messages.map(({ id }) => id)];
  const child = (fork) => messages.filter(({ parent }) => (parent ?? null) === fork);
  // A choice at each fork, by a generator that the seed begins.
  let state = seed;
  const next = (n) => (state = (state * 48271) % 2147483647) % n;
  const pick = (row) => row.at(next(row.length || 1))?.id;
  const choices = new Map(forks.map((fork) => [fork, pick(child(fork))]));
  const chosen = tree.leafFrom(null, choices);
  return {
    newest: tree.newestLeaf(),
    paths: leaves.map(({ id }) => tree.path(id).map((message) => message.id)),
    ends: messages.map(({ id }) => tree.leafFrom(id)),
    siblings: messages.map(({ id }) => ({ id, ...tree.siblings(id) })),
    chosen: tree.path(chosen).map((message) => message.id),
    choices: [...choices],
  };
}"""
)


def random_tree(seed: int) -> Tree:
    """Up to 40 messages in a random order; ids and times rise as the messages were made."""
    rng = random.Random(seed)
    messages: Tree = []
    for n in range(rng.randint(1, 40)):
        parent = rng.choice([None, *(message["id"] for message in messages[-8:])])
        messages.append({"id": f"m{n:02}", "parent": parent, "updatedAt": f"2026-01-01T00:{n:02}"})
    rng.shuffle(messages)
    return messages


def answered(text: str) -> list[dict[str, Any]]:
    return [*opening(), *deltas(text), finish()]


def edit_question(chat: ChatPage, text: str, *, n: int = -1) -> None:
    question = chat.page.locator(".question").nth(n)
    question.get_by_role("button", name="Edit the question").click()
    question.locator("textarea").fill(text)
    question.locator("textarea").press("Enter")


def switcher(chat: ChatPage, kind: str) -> Locator:
    return chat.page.get_by_role("group", name=f"Versions of this {kind}")


def test_trees_of_any_shape(chat: ChatPage) -> None:
    for seed in range(1, 61):
        messages = random_tree(seed)
        by_id = {message["id"]: message for message in messages}
        seen = chat.page.evaluate(LOOK_AT_TREE, [messages, seed])
        for path in seen["paths"]:
            # From a beginning to the leaf, each one the child of the one before.
            assert by_id[path[0]]["parent"] is None, seed
            parents = [by_id[one]["parent"] for one in path[1:]]
            assert parents == path[:-1], seed
        reached = {one for path in seen["paths"] for one in path}
        assert reached == set(by_id), seed
        for message, end in zip(messages, seen["ends"], strict=True):
            path = next(path for path in seen["paths"] if path[-1] == end)
            assert message["id"] in path, seed
        # The newest message of all is shown, whichever order they came in.
        newest = next(path for path in seen["paths"] if path[-1] == seen["newest"])
        assert max(by_id) in newest, seed
        for one in seen["siblings"]:
            parent = by_id[one["id"]]["parent"]
            row = [other["id"] for other in messages if other["parent"] == parent]
            assert row[one["index"]] == one["id"], seed
            assert one["total"] == len(row), seed
            beside = [one["previous"], one["id"], one["next"]]
            around = [None, *row, None][one["index"] : one["index"] + 3]
            assert beside == around, seed
        choices = dict(seen["choices"])
        above = [None, *seen["chosen"]]
        assert [choices[fork] for fork in above[:-1]] == seen["chosen"], seed


def test_an_edited_question_is_a_branch_and_the_switcher_goes_back(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer(answered("To the first."))
    chat.ask("First")
    chat.wait_end()
    peer.answer(answered("To the second."))
    chat.ask("Second")
    chat.wait_end()
    peer.answer(answered("To the other."))
    edit_question(chat, "Other", n=0)
    assert chat.wait_end() == "To the other."
    assert peer.received[-1] == {
        "type": "edit",
        "id": peer.received[-1]["id"],
        "message": "q1",
        "text": "Other",
    }
    expect(chat.questions).to_have_text(["Other"])
    versions = switcher(chat, "question")
    expect(versions).to_contain_text("2/2")
    previous = versions.get_by_role("button", name="Previous version")
    previous.click()
    expect(chat.questions).to_have_text(["First", "Second"])
    expect(chat.answers.locator(".prose")).to_have_text(["To the first.", "To the second."])
    expect(versions).to_contain_text("1/2")
    expect(chat.status).to_have_text("Version 1 of 2")
    # The focus stays at the switcher, on the way that is still open.
    expect(versions.get_by_role("button", name="Next version")).to_be_focused()
    chat.page.keyboard.press("Enter")
    expect(chat.questions).to_have_text(["Other"])


def test_a_question_follows_the_answer_that_is_shown(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer(answered("One."))
    chat.ask("First")
    chat.wait_end()
    edit_question(chat, "Other")
    chat.wait_end()
    expect(switcher(chat, "question")).to_contain_text("2/2")
    switcher(chat, "question").get_by_role("button", name="Previous version").click()
    expect(chat.questions).to_have_text(["First"])
    chat.ask("Second")
    chat.wait_end()
    assert peer.received[-1]["parent"] == "a1"
    expect(chat.questions).to_have_text(["First", "Second"])
    expect(switcher(chat, "question")).to_contain_text("1/2")


def test_the_editor_has_the_rules_of_the_question_box(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer(answered("Yes."))
    chat.ask("First")
    chat.wait_end()
    pencil = chat.page.get_by_role("button", name="Edit the question")
    pencil.click()
    box = chat.page.get_by_role("textbox", name="The question in other words")
    expect(box).to_be_focused()
    expect(box).to_have_value("First")
    box.press("Shift+Enter")
    box.type("line")
    expect(box).to_have_value("First\nline")
    # Enter while an input method composes chooses a candidate.
    box.dispatch_event("compositionstart")
    box.press("Enter")
    box.dispatch_event("compositionend")
    expect(box).to_be_visible()
    box.press("Escape")
    expect(box).to_have_count(0)
    expect(pencil).to_be_focused()
    expect(chat.questions).to_have_text(["First"])
    # The same words are no other version.
    pencil.click()
    box.press("Enter")
    expect(pencil).to_be_focused()
    assert peer.sent("edit") == []


def test_nothing_is_asked_in_other_words_while_an_answer_runs(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer([*opening(), *deltas("Half")])
    chat.ask("First")
    chat.wait_text(4)
    edit_question(chat, "Other")
    expect(chat.page.locator(".question-note")).to_contain_text("Another answer is being written")
    assert peer.sent("edit") == []
    peer.send(*deltas(" and whole."), finish())
    chat.wait_end()
    box = chat.page.get_by_role("textbox", name="The question in other words")
    expect(box).to_have_value("Other")
    peer.answer(answered("To the other."))
    box.press("Enter")
    assert chat.wait_end() == "To the other."


def test_another_branch_can_be_read_while_an_answer_runs(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer(answered("To the first."))
    chat.ask("First")
    chat.wait_end()
    peer.answer([*opening(), *deltas("To the ")])
    edit_question(chat, "Other")
    chat.wait_text(6)
    versions = switcher(chat, "question")
    versions.get_by_role("button", name="Previous version").click()
    expect(chat.questions).to_have_text(["First"])
    stop = chat.page.get_by_role("button", name="Stop the answer")
    expect(stop).to_be_visible()
    peer.send(*deltas("other."), finish())
    expect(stop).to_be_hidden()
    expect(chat.answer.locator(".prose")).to_have_text("To the first.")
    versions.get_by_role("button", name="Next version").click()
    expect(chat.answer.locator(".prose")).to_have_text("To the other.")


def test_what_came_while_a_question_was_on_its_way_is_shown_behind_it(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer(answered("To the first."))
    chat.ask("First")
    chat.wait_end()
    peer.ignore()
    chat.ask("Mine")
    mine = peer.sent("ask")[-1]
    opened = {"run": "elsewhere", "conversation": "c1", "message": "b2", "title": "First"}
    peer.tell({"type": "opened", **opened})
    branches = (("q1", None, "First"), ("p2", "a1", "Theirs"), ("q2", "a1", "Mine"))
    done = {"role": "assistant", "state": "finished", "finish_detail": {"type": "eos"}}
    messages: Tree = []
    for question, parent, text in branches:
        messages.append({"id": question, "parent": parent, "role": "user", "text": text})
        answer = "b2" if question == "p2" else question.replace("q", "a")
        messages.append({"id": answer, "parent": question, "text": f"To {text}.", **done})
    told = {"id": "c1", "course": None, "title": "First", "active_run": None}
    chat.page.route(
        "**/api/conversations/c1", lambda route: route.fulfill(json={**told, "messages": messages})
    )
    peer.answer(answered("To Mine."))
    peer.accept(mine)
    expect(switcher(chat, "question")).to_contain_text("2/2")
    assert chat.wait_end() == "To Mine."
    switcher(chat, "question").get_by_role("button", name="Previous version").click()
    expect(chat.questions).to_have_text(["First", "Theirs"])


def test_a_failed_answer_without_a_word_is_no_version(chat: ChatPage, peer: ScriptedPeer) -> None:
    error = {"type": "error", "code": "internal", "message": "", "retryable": True}
    peer.answer([*opening(), error])
    chat.ask("What?")
    retry = chat.answer.get_by_role("button", name="Retry")
    expect(retry).to_be_visible()
    expect(switcher(chat, "answer")).to_have_count(0)
    retry.click()
    expect(switcher(chat, "answer")).to_have_count(0)
    expect(retry).to_be_visible()
    peer.answer(answered("Whole."))
    retry.click()
    assert chat.wait_end() == "Whole."
    expect(switcher(chat, "answer")).to_have_count(0)
    assert [message["message"] for message in peer.sent("regenerate")] == ["a1", "a2"]


def test_an_answer_that_cannot_be_made_again_now_says_why(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer(answered("To the first."))
    chat.ask("First")
    chat.wait_end()
    question = {"id": "q1", "parent": None, "role": "user", "text": "First"}
    answer = {
        **{"id": "a1", "parent": "q1", "role": "assistant", "state": "finished"},
        **{"text": "To the first.", "finish_detail": {"type": "eos"}},
    }
    told = {
        **{"id": "c1", "course": None, "title": "First", "active_run": None},
        "messages": [question, answer],
    }
    chat.page.route("**/api/conversations/c1", lambda route: route.fulfill(json=told))
    peer.refuse("conversation_busy", retryable=True)
    chat.answer.get_by_role("button", name="Regenerate").press("Enter")
    expect(chat.page.locator("#problem")).to_be_visible()
    expect(chat.answer.locator(".prose")).to_have_text("To the first.")
    expect(chat.answer).to_be_focused()


def test_a_refused_edit_keeps_its_words_and_the_way_back(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer(answered("To the first."))
    chat.ask("First")
    chat.wait_end()
    peer.refuse("queue_full", retryable=True)
    edit_question(chat, "Other")
    expect(chat.answer.locator(".notice-red")).to_contain_text("Too many people")
    switcher(chat, "question").get_by_role("button", name="Previous version").click()
    expect(chat.questions).to_have_text(["First"])
    switcher(chat, "question").get_by_role("button", name="Next version").click()
    peer.answer(answered("To the other."))
    chat.answer.get_by_role("button", name="Retry").click()
    assert chat.wait_end() == "To the other."
    first, second = peer.sent("edit")
    assert first["id"] != second["id"]
    assert (first["message"], first["text"]) == (second["message"], second["text"])


def test_a_question_that_never_arrived_is_asked_in_other_words(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    peer.refuse("queue_full", retryable=True)
    chat.ask("First")
    expect(chat.answer.locator(".notice-red")).to_be_visible()
    peer.answer(answered("To the other."))
    edit_question(chat, "Other")
    assert chat.wait_end() == "To the other."
    # There is nothing to keep beside it.
    expect(chat.questions).to_have_text(["Other"])
    expect(switcher(chat, "question")).to_have_count(0)
    first, second = peer.sent("ask")
    assert first["id"] != second["id"]
    assert (first["text"], second["text"]) == ("First", "Other")


def test_the_focus_is_not_lost_with_the_button(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer(answered("One."))
    chat.ask("First")
    chat.wait_end()
    chat.answer.get_by_role("button", name="Regenerate").press("Enter")
    expect(switcher(chat, "answer")).to_contain_text("2/2")
    expect(chat.answer).to_be_focused()
    edit_question(chat, "Other")
    expect(chat.answer).to_be_focused()


def test_an_answer_made_again_on_the_real_server(open_chat: OpenChat) -> None:
    chat = open_chat()
    chat.ask()
    chat.wait_end()
    edit_question(chat, OTHER)
    assert chat.wait_end() == OTHER
    chat.answer.get_by_role("button", name="Regenerate").click()
    expect(switcher(chat, "answer")).to_contain_text("2/2")
    chat.wait_end()
    expect(switcher(chat, "question")).to_contain_text("2/2")
    # This tab remembers what it showed; another one shows the newest.
    switcher(chat, "answer").get_by_role("button", name="Previous version").click()
    switcher(chat, "question").get_by_role("button", name="Previous version").click()
    expect(chat.questions).to_have_text([QUESTION])
    chat.page.reload()
    expect(chat.questions).to_have_text([QUESTION])
    other = open_chat(chat.page.url, context=chat.page.context)
    expect(other.questions).to_have_text([OTHER])
    expect(switcher(other, "answer")).to_contain_text("2/2")
    chat.ask("And on Fridays?")
    chat.wait_end()
    address = re.sub(r"/c/", "/api/conversations/", chat.page.url)
    messages = chat.page.context.request.get(address).json()["messages"]
    texts = {message["id"]: message for message in messages}
    asked = next(message for message in messages if message["text"] == "And on Fridays?")
    assert texts[texts[asked["parent"]]["parent"]]["text"] == QUESTION
    # The question that follows is the newest now, on its branch.
    expect(other.questions).to_have_text([QUESTION, "And on Fridays?"])
