"""Drafts: one for each conversation, and none for the next person at the same device."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser.conftest import CHROMIUM_OPTIONS, OpenChat
from tests.e2e.browser.school import School, Visit, ask, join, make_course, visits
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening


def sent(peer: ScriptedPeer) -> list[str]:
    return [message["text"] for message in peer.sent("ask")]


@pytest.fixture
def peer() -> ScriptedPeer:
    peer = ScriptedPeer()
    peer.answer([*opening(), *deltas("Yes."), finish()])
    return peer


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


def test_another_tab_leaves_a_draft_alone(open_chat: OpenChat) -> None:
    """An answer begins and ends there, beside an empty box, when the writer's tab is closed."""
    other = open_chat()
    other.ask()
    other.wait_end()
    chat = open_chat(other.page.url, context=other.page.context)
    expect(chat.answers).to_have_count(1)
    chat.question.fill("half of the next")
    chat.page.close()
    other.page.bring_to_front()
    other.answer.locator("[data-action=regenerate]").click()
    expect(other.answer.locator(".versions-place")).to_have_text("2/2")
    other.wait_end()
    expect(other.page.locator("button.stop")).to_be_hidden()
    expect(other.question).to_have_value("")
    chat = open_chat(other.page.url, context=other.page.context)
    expect(chat.question).to_have_value("half of the next")


def test_each_tab_has_what_was_written_in_it_after_a_reload(open_chat: OpenChat) -> None:
    first = open_chat()
    first.ask()
    first.wait_end()
    second = open_chat(first.page.url, context=first.page.context)
    first.question.fill("one thing")
    second.question.fill("another thing")
    # A tab that is opened now begins with the newest.
    third = open_chat(first.page.url, context=first.page.context)
    expect(third.question).to_have_value("another thing")
    first.page.bring_to_front()
    first.page.reload()
    expect(first.question).to_have_value("one thing")
    # One that has none any more takes none of another, and begins with what there is, too.
    first.question.fill("")
    for tab in (second, first):
        tab.page.bring_to_front()
        tab.page.reload()
        expect(tab.question).to_have_value("another thing")


def test_a_question_asked_in_one_tab_takes_no_draft_of_another(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    expect(chat.page.locator("#model-note")).to_contain_text("peer")
    other = open_chat(context=chat.page.context)
    peer.ignore()
    chat.question.fill("asked at once")
    other.question.fill("still being written")
    # Two drafts of new conversations; the last one written is kept.
    chat.question.press("Enter")
    expect(chat.questions).to_have_text(["asked at once"])
    [message] = peer.sent("ask")
    peer.answer([*opening(), *deltas("Yes."), finish()])
    peer.accept(message)
    chat.wait_end()
    other.page.reload()
    other.page.wait_for_selector("html.is-ready")
    expect(other.question).to_have_value("still being written")


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
    """One that keeps the pages that are left, as the browsers of people do; with windows, where
    there is one."""
    keeping = browser.browser_type.launch(
        executable_path=shutil.which("chromium") or shutil.which("chromium-headless-shell"),
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
