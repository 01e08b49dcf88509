"""Chips that lead from an answer to the sentences behind it, by the server's word."""

from __future__ import annotations

import re
from typing import Any

from playwright.sync_api import expect

from tests.e2e.browser.axe import violations
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import Event, ScriptedPeer, deltas, finish, opening, passage

SOURCE = "😀 The door opens at eight. It closes at **nine sharp**. Bring a card."


def cited(text: str, sentence: str, n: int, *marks: str, by: str = "match") -> Event:
    """What the server tells of `sentence`, whose support in the source is `marks`."""
    start = text.index(sentence)
    ranges = [[SOURCE.index(mark), SOURCE.index(mark) + len(mark)] for mark in marks]
    end = start + len(sentence)
    return {"type": "citation", "n": n, "passage": f"p{n}", "start": start, "end": end,
            "marks": ranges, "by": by}  # fmt: skip


def show(open_chat: OpenChat, text: str, *citations: Event, **end: Any) -> Any:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    source = {**passage(1), "text": SOURCE, "locator": "p. 4 › Doors", "place": {"page": 4}}
    peer.answer([*opening(source, passage(2)), *deltas(text), *citations, {**finish(), **end}])
    chat.ask("What?")
    chat.wait_end()
    return chat


def test_a_chip_stands_behind_the_sentence_and_marks_what_supports_it(open_chat: OpenChat) -> None:
    text = "😀 It opens at eight.\n\nIt closes at nine. Nobody knows why."
    chat = show(
        open_chat,
        text,
        cited(text, "😀 It opens at eight.", 1, "The door opens at eight."),
        cited(text, "It closes at nine.", 1, "It closes at **nine sharp**."),
    )
    prose = chat.answer.locator(".prose")
    expect(prose.locator("p").first).to_have_text("😀 It opens at eight.1")
    expect(prose.locator("p").last).to_have_text("It closes at nine.1 Nobody knows why.")
    assert chat.text.replace("\n", "") == text.replace("\n", "")
    panel = chat.page.locator("#source-panel")
    for chip, marked in ((0, "The door opens at eight."), (1, "It closes at nine sharp.")):
        prose.locator(".cite").nth(chip).click()
        expect(panel.locator(".panel-locator")).to_have_text("page 4 › Doors")
        assert "".join(panel.locator("mark").all_text_contents()) == marked
        chat.page.keyboard.press("Escape")
    # The card marks all of them.
    chat.answer.locator(".source summary").first.click()
    marks = chat.answer.locator(".source").first.locator("mark")
    expect(marks.first).to_be_visible()
    assert "".join(marks.all_text_contents()) == "The door opens at eight.It closes at nine sharp."
    expect(chat.answer.locator(".source-locator").first).to_have_text("page 4 › Doors")


def test_neighbouring_sentences_of_one_source_share_a_chip(open_chat: OpenChat) -> None:
    text = "It opens at eight. It closes at nine."
    chat = show(
        open_chat,
        text,
        cited(text, "It opens at eight.", 1, "The door opens at eight."),
        cited(text, "It closes at nine.", 1, "It closes at **nine sharp**."),
    )
    expect(chat.answer.locator(".prose")).to_have_text(f"{text}1")
    chat.answer.locator(".cite").click()
    marks = chat.page.locator("#source-panel mark")
    assert "".join(marks.all_text_contents()) == "The door opens at eight.It closes at nine sharp."


def test_unknown_numbers_are_dropped_and_other_brackets_stay(open_chat: OpenChat) -> None:
    text = "One [1], both [1, 2], some 【2，7】, none [7]. Not a[7], not [0, 1], `[7]`."
    text += "\n\n```\nx[7] [1]\n```"
    chat = show(open_chat, text)
    prose = chat.answer.locator(".prose")
    expect(prose.locator(".cite")).to_have_text(["1", "1", "2", "2"])
    expect(prose.locator("p")).to_have_text(
        "One 1, both 12, some 2, none. Not a[7], not [0, 1], [7]."
    )
    expect(prose.locator("pre")).to_have_text("x[7] [1]")


def test_a_citation_never_breaks_a_table_or_a_fence(open_chat: OpenChat) -> None:
    text = "| day | time |\n| - | - |\n| Monday | eight |\n\n```\ncode.\n```\n\nThe end."
    chat = show(
        open_chat,
        text,
        cited(text, "| Monday | eight |", 1, "The door opens at eight."),
        cited(text, "code.\n```", 1, "Bring a card."),
    )
    prose = chat.answer.locator(".prose")
    expect(prose.locator("td")).to_have_text(["Monday", "eight1"])
    expect(prose.locator("pre")).to_have_text("code.")
    expect(prose.locator("p")).to_have_text("The end.")


def test_a_line_of_signs_does_not_hold_the_page_up(open_chat: OpenChat) -> None:
    """A chip is put behind a line only where it stays what it is: that is found out in no time."""
    text = f"{'#' * 400} It opens at eight."
    chat = show(open_chat, text, cited(text, text, 1, "The door opens at eight."))
    expect(chat.answer.locator(".prose p")).to_have_text(f"{text}1")


def test_an_answer_without_support_says_so(open_chat: OpenChat) -> None:
    chat = show(open_chat, "Yes, of course.", no_support=True)
    expect(chat.answer.locator(".notice-amber")).to_contain_text(
        "No sentence of the sources supports"
    )
    chat.page.get_by_role("button", name="中文").click()
    expect(chat.answer.locator(".notice-amber")).to_contain_text("来源中没有支持这个回答的句子")
    expect(chat.answer.locator(".finish")).to_have_text("回答完整")
    supported = show(open_chat, "Bring a card.", no_support=False)
    expect(supported.answer.locator(".notice")).to_have_count(0)


def test_a_sentence_without_a_source_is_marked_and_explained(open_chat: OpenChat) -> None:
    known, made_up = "It opens at eight.", "The dean is Professor Whitfield. She came in spring."
    text = f"{known} {made_up}\n\n- Nobody said that either, by the way."
    first, second = made_up.split(". ", 1)
    none = [
        {**cited(text, part, 0, by="none"), "passage": None}
        for part in (f"{first}.", second, "- Nobody said that either, by the way.")
    ]
    supported = cited(text, known, 1, "The door opens at eight.")
    chat = show(open_chat, text, supported, *none)
    prose = chat.answer.locator("> .prose")
    expect(prose.locator("p")).to_have_text(f"{known}1 {first}.? {second}?")
    expect(prose.locator("li")).to_have_text("Nobody said that either, by the way.?")
    assert chat.text.replace("\n", "") == text.replace("\n", "").replace("- ", "")
    marks = prose.get_by_role("button", name="No passage that was read supports this")
    expect(marks).to_have_count(3)
    chat.page.get_by_role("button", name="中文").click()
    expect(prose.locator(".unsourced").first).to_have_attribute(
        "aria-label", re.compile("没有支持")
    )
    prose.locator(".unsourced").first.focus()
    chat.page.keyboard.press("Enter")
    expect(chat.page.locator("dialog[open] .word[data-word=citation]")).to_be_focused()
    chat.page.keyboard.press("Escape")
    expect(prose.locator(".unsourced").first).to_be_focused()
    assert violations(chat.page, only=".answer") == []


def test_a_thumb_is_sent_and_can_be_taken_back(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(passage(1)), *deltas("Some text."), finish()])
    chat.ask("What?")
    chat.wait_end()
    up = chat.answer.get_by_role("button", name="This answer helped")
    down = chat.answer.get_by_role("button", name="This answer did not help")
    up.click()
    expect(up).to_have_attribute("aria-pressed", "true")
    down.click()
    expect(up).to_have_attribute("aria-pressed", "false")
    chat.answer.get_by_label("What is wrong with it?").fill("  Too short. ")
    chat.answer.get_by_role("button", name="Send").click()
    expect(chat.answer.locator(".feedback-note")).to_contain_text("Thank you")
    down.click()
    expect(down).to_have_attribute("aria-pressed", "false")
    sent = [message for message in peer.received if message["type"] == "feedback"]
    assert [(one["value"], one.get("note")) for one in sent] == [
        ("up", None),
        ("down", None),
        ("down", "Too short."),
        ("none", None),
    ]
    assert {one["message"] for one in sent} == {"a1"}
    assert len({one["id"] for one in sent}) == 4
