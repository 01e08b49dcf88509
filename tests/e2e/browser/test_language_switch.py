"""A switch of language: nothing that is being written goes, and one that fails is told."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.school import PASSWORD, School, Visit, make_course, upload
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, passage

CATALOGUE = "**/i18n/zh.json"
FAILED = "The other language could not be loaded. Check the connection and try again."
FAILED_ZH = "无法加载另一种语言，请检查网络后重试。"


@pytest.fixture
def course(teacher: Page) -> dict[str, Any]:
    return make_course(teacher, "Languages")


def switch(page: Page) -> None:
    page.locator("#language").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")


def refuse(route: Route) -> None:
    route.fulfill(status=503, body="")


def lose(route: Route) -> None:
    route.abort()


def test_settings_that_are_not_saved_yet_stay(teacher: Page, course: dict[str, Any]) -> None:
    teacher.goto(f"/teach/{course['slug']}/settings")
    teacher.get_by_label("Title", exact=True).fill("Half a title")
    teacher.get_by_label("Main language").select_option("zh")
    teacher.get_by_label("Show names in the log").check()
    teacher.get_by_label("Questions to begin with").fill("What is\npaging?")
    switch(teacher)
    expect(teacher.locator("[name=title]")).to_have_value("Half a title")
    expect(teacher.locator("[name=language]")).to_have_value("zh")
    expect(teacher.locator("[name=shows_names]")).to_be_checked()
    expect(teacher.locator("[name=suggestions]")).to_have_value("What is\npaging?")
    expect(teacher.locator("[name=is_open]")).to_be_checked(checked=course["is_open"])


def test_a_course_that_is_not_made_yet_stays(teacher: Page) -> None:
    teacher.get_by_label("Title", exact=True).fill("A new one")
    teacher.locator(".more summary").click()
    teacher.get_by_label("Title in Chinese").fill("新课程")
    teacher.get_by_label("Week 1 begins on").fill("2026-09-07")
    switch(teacher)
    expect(teacher.locator("[name=title]")).to_have_value("A new one")
    expect(teacher.locator("[name=title_zh]")).to_be_visible()
    expect(teacher.locator("[name=title_zh]")).to_have_value("新课程")
    expect(teacher.locator("[name=starts_on]")).to_have_value("2026-09-07")


def test_a_question_to_be_tried_stays(teacher: Page, course: dict[str, Any]) -> None:
    teacher.goto(f"/teach/{course['slug']}/try")
    teacher.get_by_label("Question", exact=True).fill("What is")
    switch(teacher)
    expect(teacher.locator("[name=question]")).to_have_value("What is")


def test_words_to_look_for_in_the_log_stay(teacher: Page, course: dict[str, Any]) -> None:
    teacher.goto(f"/teach/{course['slug']}/log")
    teacher.get_by_label("Words").fill("zebra")
    switch(teacher)
    expect(teacher.locator("[name=text]")).to_have_value("zebra")
    expect(teacher.get_by_label("包含的词")).to_have_value("zebra")


def test_a_refused_value_of_a_material_stays(teacher: Page, course: dict[str, Any]) -> None:
    upload(teacher, course, "notes.md", b"# Paging\n\nPages are mapped to frames.\n")
    teacher.goto(f"/teach/{course['slug']}")
    teacher.get_by_label("Week").fill("99")
    teacher.get_by_label("Week").press("Tab")
    note = teacher.locator(".row-note")
    expect(note).to_contain_text("60")
    english = note.inner_text()
    switch(teacher)
    expect(teacher.locator("[name=week]")).to_have_value("99")
    expect(note).to_contain_text("60")
    expect(note).not_to_have_text(english)


def test_an_account_that_is_not_made_yet_stays(visit: Visit, course: dict[str, Any]) -> None:
    page = visit(f"/join/{course['join_code']}")
    page.get_by_label("Your name").fill("Mei")
    page.get_by_label("Login").fill("mei")
    page.get_by_label("Password").fill(PASSWORD)
    switch(page)
    expect(page.locator("[name=name]")).to_have_value("Mei")
    expect(page.locator("[name=login]")).to_have_value("mei")
    expect(page.locator("[name=password]")).to_have_value(PASSWORD)


def test_a_password_gets_into_no_other_field(teacher: Page) -> None:
    """The account's page asks for the password in three places."""
    teacher.goto("/account")
    teacher.wait_for_selector("html.is-ready")
    folds = teacher.locator("details > summary")
    for fold in folds.all():
        fold.click()
    teacher.locator(".form-danger [name=password]").fill(PASSWORD)
    switch(teacher)
    expect(teacher.locator(".form-danger [name=password]")).to_have_value(PASSWORD)
    expect(teacher.locator("[autocomplete=new-password]")).to_have_value("")
    expect(teacher.locator("[name=old_password]")).to_have_value("")


def test_a_note_on_an_answer_stays(open_chat: OpenChat, peer: ScriptedPeer) -> None:
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(passage(1)), *deltas("Some text."), finish()])
    chat.ask("What?")
    chat.wait_end()
    chat.answer.get_by_role("button", name="This answer did not help").click()
    note = chat.answer.get_by_role("textbox")
    note.fill("Wrong ro")
    expect(chat.answer.locator(".feedback-note")).to_contain_text("Thank you")
    switch(chat.page)
    expect(chat.answer.locator(".sources-title")).to_have_text("来源")
    expect(note).to_have_value("Wrong ro")
    expect(note).to_have_attribute("placeholder", "哪里不对？老师会看到你写的内容。（可选）")
    down = chat.answer.locator(".thumb").last
    expect(down).to_have_attribute("aria-pressed", "true")
    expect(down).to_have_accessible_name("这个回答没有帮助：告诉老师")
    expect(chat.answer.locator(".feedback-note")).to_contain_text("谢谢")
    note.fill("Wrong room.")
    chat.answer.get_by_role("button", name="发送").click()
    expect(note).to_have_count(0)
    assert peer.sent("feedback")[-1]["note"] == "Wrong room."


@pytest.mark.parametrize("fail", [refuse, lose])
@pytest.mark.parametrize("path", ["/teach", "/login"])
def test_a_language_that_cannot_be_loaded_is_told(
    visit: Visit, school: School, path: str, fail: Any
) -> None:
    page = visit(path, storage_state=school.teacher)
    page.route(CATALOGUE, fail)
    page.locator("#language").click()
    told = page.get_by_role("alert").filter(has_text=FAILED)
    expect(told).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", "en")
    page.unroute(CATALOGUE)
    switch(page)
    expect(told).to_have_count(0)
    expect(page.get_by_role("alert").filter(has_text=FAILED_ZH)).to_have_count(0)


def test_the_chat_tells_of_a_language_that_cannot_be_loaded(
    open_chat: OpenChat, peer: ScriptedPeer
) -> None:
    def before(page: Page) -> None:
        peer.attach_to(page)
        page.route(CATALOGUE, lose)

    chat = open_chat(before=before, loses_network=True)
    chat.page.locator("#language").click()
    expect(chat.page.locator("#problem")).to_be_visible()
    expect(chat.page.locator("#problem")).to_have_text(FAILED)
    expect(chat.page.locator("html")).to_have_attribute("lang", "en")
    chat.page.unroute(CATALOGUE)
    switch(chat.page)
    expect(chat.page.locator("#problem")).to_be_hidden()
