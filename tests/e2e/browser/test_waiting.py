"""Waiting: what is being done, how far it is, and that nothing ever looks frozen."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, passage

LOG_STATUS = """() => {
  window.announced = [];
  const region = document.querySelector('#status');
  new MutationObserver(() => window.announced.push(region.textContent)).observe(region, {
    childList: true, characterData: true, subtree: true,
  });
}"""


def announced(page: Page) -> list[str]:
    """What the live region has said since its log began; without the pauses."""
    return [text for text in page.evaluate("() => window.announced") if text]


@pytest.fixture
def timed(chat: ChatPage) -> ChatPage:
    """The page with a clock that the test can put forward."""
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    chat.page.clock.install()
    return chat


def test_each_step_has_its_words(chat: ChatPage, peer: ScriptedPeer) -> None:
    retrieval, context, start = opening(passage(1), passage(2))
    chat.ask("What?")
    phase = chat.answer.locator(".phase")
    step = chat.answer.locator(".steps [aria-current=step]")
    expect(phase).to_contain_text("Searching the materials…")
    expect(chat.status).to_have_text("Searching the materials…")
    expect(step).to_have_text("Search")
    peer.send({"type": "queued", "position": 7, "eta_ms": 38_000})
    expect(phase).to_contain_text("Waiting in line: number 7, about 40 s")
    expect(step).to_have_text("Queue")
    peer.send({"type": "queued", "position": 1})
    expect(phase).to_contain_text("Next in line…")
    peer.send(retrieval, context, start, {"type": "progress", "prefilled": 30, "total": 100})
    expect(phase).to_contain_text("Reading 2 passages…30%")
    bar = phase.get_by_role("progressbar", name="Reading 2 passages…")
    expect(bar).to_have_attribute("aria-valuenow", "30")
    expect(chat.answer.locator(".steps li")).to_have_text(
        ["Send", "Search", "Queue", "Read", "Write"]
    )
    expect(step).to_have_text("Read")
    expect(chat.answer.locator(".waiting .meter-legend")).to_contain_text("Passages 900")
    peer.send(*deltas("Words"))
    expect(chat.status).to_have_text("Writing the answer…")
    expect(phase).to_be_hidden()
    expect(chat.answer.locator(".still .pulse")).to_be_visible()
    peer.send(finish())
    expect(chat.status).to_have_text("Complete")
    expect(chat.answer.locator(".waiting")).to_have_count(0)


def test_one_passage_is_not_called_passages(chat: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer(opening(passage(1)))
    chat.ask("What?")
    expect(chat.status).to_have_text("Reading 1 passage…")


def test_a_long_wait_explains_itself_and_counts(timed: ChatPage) -> None:
    timed.ask("What?")
    more = timed.answer.locator(".waiting-more")
    time = timed.answer.locator(".phase-time")
    expect(more).to_be_hidden()
    expect(time).to_be_empty()
    timed.page.clock.fast_forward(1500)
    expect(more).to_be_visible()
    # What the test itself takes comes on top.
    timed.page.clock.fast_forward(2000)
    expect(time).to_have_text(re.compile(r"^[3-9] s$"))
    timed.page.clock.fast_forward(62_000)
    expect(time).to_have_text(re.compile(r"^1 min [5-9] s$|^1 min \d\d s$"))
    assert time.get_attribute("aria-hidden") == "true"


def test_a_text_that_stands_still_says_that_it_goes_on(timed: ChatPage, peer: ScriptedPeer) -> None:
    peer.answer([*opening(), *deltas("Half a sentence")])
    timed.ask("What?")
    timed.wait_text(15)
    words = timed.answer.locator(".still-words")
    expect(words).to_be_empty()
    timed.page.clock.fast_forward(4000)
    expect(words).to_have_text(re.compile(r"^Still working… [4-9] s$"))
    peer.send(*deltas(" and its end"))
    expect(words).to_be_empty()
    timed.page.get_by_role("button", name="Stop the answer").click()
    expect(words).to_have_text("Stopping…")
    # What is not a phase is not announced.
    expect(timed.status).to_have_text("Stopping…")


def test_a_lost_connection_is_told_where_the_reader_looks(
    timed: ChatPage, peer: ScriptedPeer
) -> None:
    peer.answer([*opening(), *deltas("Half a sentence")])
    timed.ask("What?")
    timed.wait_text(15)
    peer.is_deaf = True
    peer.close(1001)
    timed.page.clock.fast_forward(2000)
    words = timed.answer.locator(".still-words")
    told = "If the server is still writing, the rest will be shown here."
    expect(words).to_have_text(told)
    # Once: the bar says what has happened.
    expect(timed.page.locator("#connection span")).to_have_text("Connection lost.")


def test_a_question_without_connection_says_that_it_waits(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    peer.is_deaf = True
    chat = open_chat(before=peer.attach_to)
    chat.ask("What?")
    expect(chat.answer.locator(".phase")).to_contain_text("Not sent yet: there is no connection.")
    assert peer.sent("ask") == []


def test_every_phase_is_announced_once(timed: ChatPage, peer: ScriptedPeer) -> None:
    page = timed.page
    page.evaluate(LOG_STATUS)
    retrieval, context, start = opening(passage(1))
    for _ in range(2):
        peer.answer([])
        timed.ask("What?")
        page.clock.run_for(300)
        peer.send({"type": "queued", "position": 4})
        page.clock.run_for(300)
        peer.send({"type": "queued", "position": 3})
        page.clock.run_for(300)
        peer.send({"type": "queued", "position": 2})
        page.clock.run_for(15_000)
        peer.send({"type": "queued", "position": 2})
        page.clock.run_for(300)
        peer.send(retrieval, context, start)
        peer.send({"type": "progress", "prefilled": 30, "total": 100})
        page.clock.run_for(300)
        peer.send({"type": "progress", "prefilled": 60, "total": 100})
        peer.send(*deltas("Many words that nobody wants to hear twice."))
        page.clock.run_for(300)
        peer.send(*deltas("And more."), finish())
        timed.wait_end()
    once = [
        "Searching the materials…",
        "Waiting in line: number 4",
        "Waiting in line: number 2",
        "Reading 1 passage…",
        "Writing the answer…",
        "Complete",
    ]
    # (A step that is passed at once is not announced, and this one is, where it takes longer.)
    assert [text for text in announced(page) if text != "Sending…"] == once * 2


def test_the_same_end_is_announced_for_each_answer(chat: ChatPage, peer: ScriptedPeer) -> None:
    chat.page.evaluate(LOG_STATUS)
    peer.answer([*opening(), *deltas("Yes."), finish()])
    for num in (1, 2):
        chat.ask("What?")
        chat.wait_end()
        expect(chat.status).to_have_text("Complete")
        assert [text for text in announced(chat.page) if text == "Complete"] == ["Complete"] * num


SPANS = """async () => {
  const main = document.querySelector('script[type=module]').src;
  const { elapsed, estimated } = await import(new URL('./answer/spans.js', main));
  const passed = [0, 999, 59_999, 60_000, 125_400].map(elapsed);
  const coming = [0, 400, 9_300, 10_001, 38_000, 59_500, 61_000, 118_000, 150_001].map(estimated);
  return [passed, coming];
}"""


def test_spans_are_told_no_finer_than_they_are_known(chat: ChatPage) -> None:
    passed, coming = chat.page.evaluate(SPANS)
    assert passed == ["0 s", "0 s", "59 s", "1 min", "2 min 5 s"]
    assert coming == ["1 s", "1 s", "10 s", "15 s", "40 s", "1 min", "1 min 5 s", "2 min", "3 min"]
