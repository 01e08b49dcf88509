"""Writing a question: input methods, line breaks, double submits, long texts, drafts, zoom."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import CHROMIUM_OPTIONS, OpenChat
from tests.e2e.browser.ime import Ime
from tests.e2e.browser.school import School, Visit, ask, join, make_course, visits
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


TYPING = """async () => {
  const input = document.querySelector('#question');
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
    """Pasted, as lines are: with many more of them it is the browser's own box that is slow."""
    chat = open_chat(permissions=["clipboard-read", "clipboard-write"])
    text = (("A 多 word and 数字 123, " * 16) + "\n") * 600
    assert len(text.encode()) > 200_000
    chat.question.focus()
    chat.page.evaluate(TYPING)
    chat.page.evaluate("(text) => navigator.clipboard.writeText(text)", text)
    chat.page.keyboard.press("Control+v")
    for _ in range(9):
        chat.page.keyboard.press("x")
    chat.page.wait_for_function("() => window.typed.length === 10")
    durations = sorted(chat.page.evaluate("() => window.typed.slice(1)"))
    assert durations[len(durations) // 2] < 100, durations
    expect(chat.question).to_have_value(text + "x" * 9)


def test_each_conversation_has_a_draft(open_chat: OpenChat) -> None:
    chat = open_chat()
    page = chat.page
    chat.ask()
    chat.wait_end()
    chat.question.fill("half of the next")
    page.locator("a.new-conversation").click()
    expect(chat.question).to_have_value("")
    chat.question.fill("another")
    page.reload()
    expect(chat.question).to_have_value("another")
    page.locator(".conversation").click()
    expect(chat.question).to_have_value("half of the next")
    # What nobody has touched for long is not kept.
    page.evaluate(
        """() => { for (const [key, days] of [['old', 40], ['kept', 20]])
             localStorage.setItem(`lectern.draft.${key}`,
               JSON.stringify({text: key, at: Date.now() - days * 86400000})); }"""
    )
    page.reload()
    page.wait_for_selector("html.is-ready")
    keys = page.evaluate("Object.keys(localStorage).filter(key => key.includes('draft'))")
    assert "lectern.draft.kept" in keys
    assert "lectern.draft.old" not in keys


def test_what_another_person_had_written_is_gone(open_chat: OpenChat) -> None:
    """A browser that was left without a log-out: neither shown nor asked."""
    chat = open_chat()
    page = chat.page
    page.evaluate(
        """() => {
             const waiting = [{type: 'ask', id: 'k1', text: 'theirs', course: null}];
             localStorage.setItem('lectern.draft.new',
               JSON.stringify({text: 'theirs', at: Date.now()}));
             sessionStorage.setItem('lectern.outbox', JSON.stringify(waiting));
             for (const storage of [localStorage, sessionStorage])
               storage.setItem('lectern.owner', 'somebody else');
           }"""
    )
    page.reload()
    page.wait_for_selector("html.is-ready")
    expect(page.locator("#model-note")).to_contain_text("scripted")
    expect(chat.question).to_have_value("")
    expect(chat.questions).to_have_count(0)
    kept = page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    assert "theirs" not in kept
    assert page.request.get("/api/conversations").json()["conversations"] == []


def test_a_log_out_leaves_nothing_written(school: School, visit: Visit) -> None:
    student = visit()
    course = make_course(visit("/teach", storage_state=school.teacher), "Drafts")
    join(student, course, "Ada", "ada-drafts")
    student.locator("#question").fill("not meant for others")
    assert "not meant" in student.evaluate("JSON.stringify({...localStorage})")
    student.get_by_role("button", name="Log out").click()
    student.wait_for_url("**/login**")
    assert student.evaluate("[localStorage.length, sessionStorage.length]") == [0, 0]


def test_a_log_out_without_a_network_says_so(school: School, visit: Visit) -> None:
    student = visit()
    course = make_course(visit("/teach", storage_state=school.teacher), "Offline")
    join(student, course, "Bo", "bo-offline")
    expect(student.locator("#model-note")).to_contain_text("quoting")
    student.route("**/api/logout", lambda route: route.abort())
    student.get_by_role("button", name="Log out").click()
    problem = student.locator("#problem")
    expect(problem).to_be_visible()
    # The page goes on as it was: what is asked is answered.
    assert ask(student, "Is it still open?")
    student.unroute("**/api/logout")
    problem.get_by_role("button", name="Retry").click()
    student.wait_for_url("**/login**")


@pytest.fixture
def keeping_browser(browser: Browser) -> Iterator[Browser]:
    """One that keeps the pages that are left, as the browsers of people do."""
    keeping = browser.browser_type.launch(
        executable_path=shutil.which("chromium"),
        args=CHROMIUM_OPTIONS,
        ignore_default_args=["--disable-back-forward-cache"],
    )
    yield keeping
    keeping.close()


def test_the_way_back_shows_nothing_of_who_has_logged_out(
    school: School, keeping_browser: Browser
) -> None:
    """The browser keeps a page that is left, and shows it as it was."""
    with visits(keeping_browser, school.address) as visit:
        course = make_course(visit("/teach", storage_state=school.teacher), "Shared")
        student = visit()
        join(student, course, "Cy", "cy-shared")
        assert ask(student, "A private question")
        student.locator("#question").fill("a private draft")
        student.get_by_role("button", name="Log out").click()
        student.wait_for_url("**/login**")
        student.wait_for_selector("html.is-ready")
        student.go_back(wait_until="commit")
        # Nobody is logged in: whatever the way back leads to sends them to the login.
        student.wait_for_url("**/login**")
        expect(student.get_by_label("Password")).to_be_visible()
        assert "private" not in student.content()


@pytest.mark.parametrize(
    ("width", "height"), [(640, 360), (320, 256)], ids=["200 per cent", "400 per cent"]
)
def test_a_zoomed_page_can_be_read_and_written(
    open_chat: OpenChat, width: int, height: int
) -> None:
    """As 1280 × 720 and 1280 × 1024 are at such a zoom (WCAG 1.4.4, 1.4.10)."""
    chat = open_chat(viewport={"width": width, "height": height})
    page = chat.page
    # It begins at its beginning, also where not all of the welcome can be seen.
    expect(page.locator(".welcome-title")).to_be_in_viewport()
    expect(page.locator("#newest")).to_be_hidden()
    chat.ask()
    chat.wait_end()
    dock = page.locator(".dock")
    # Even with a long text and its note, most of the window is the transcript's.
    for text in ("", "long " * 5000):
        chat.question.fill(text)
        if text:
            expect(budget_of(chat)).to_contain_text("tokens")
        box = dock.bounding_box()
        assert box is not None
        assert box["height"] <= 0.4 * height + 1
        assert chat.question.evaluate("node => node.clientHeight") >= 20
        assert page.locator("#scroll").evaluate("node => node.clientHeight") >= 0.55 * height
    page.locator("#scroll").evaluate("node => node.scrollTo(0, 1e6)")
    expect(page.locator(".topbar")).not_to_be_in_viewport()
    assert not chat.is_wider_than_screen()
    # What has the focus is never behind the dock.
    chat.answer.locator("summary").first.focus()
    hidden = """() => { const {left, top, width, height} =
      document.activeElement.getBoundingClientRect();
      const hit = document.elementFromPoint(left + width / 2, top + height / 2);
      return !document.activeElement.contains(hit); }"""
    assert not page.evaluate(hidden)


def test_larger_letters_alone_lose_nothing(open_chat: OpenChat) -> None:
    chat = open_chat(viewport={"width": 1280, "height": 720})
    chat.page.evaluate("document.documentElement.style.fontSize = '200%'")
    # The question's box is as high as its lines are now, before anyone writes into it.
    chat.page.wait_for_function(
        """() => { const {scrollHeight, clientHeight} = document.querySelector('#question');
          return scrollHeight <= clientHeight; }"""
    )
    chat.ask()
    chat.wait_end()
    assert not chat.is_wider_than_screen()
    expect(chat.question).to_be_in_viewport(ratio=1)
    expect(chat.page.locator("a.new-conversation")).to_be_in_viewport(ratio=1)
    # Nothing stands below the page.
    assert chat.page.evaluate(
        "() => document.documentElement.scrollHeight <= document.documentElement.clientHeight"
    )
    # The rest of the sidebar is scrolled to, not lost.
    chat.page.locator("#help").scroll_into_view_if_needed()
    expect(chat.page.locator("#help")).to_be_in_viewport(ratio=1)
