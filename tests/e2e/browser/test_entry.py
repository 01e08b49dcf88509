"""The pages at the door: logging in, codes and one-time links that work no more."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.school import PASSWORD, School, Visit, ask, join, make_course


def log_in(page: Page, password: str = PASSWORD) -> None:
    page.locator("[name=login]").fill("lin")
    page.locator("[name=password]").fill(password)
    page.locator("[name=password]").press("Enter")


def test_a_wrong_password_is_told_in_the_readers_language(visit: Visit) -> None:
    page = visit("/login")
    log_in(page, "not this one")
    problem = page.locator(".form-problem")
    expect(problem).to_be_visible()
    english = problem.inner_text()
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading")).to_have_text("登录")
    log_in(page, "not this one")
    expect(problem).to_contain_text(re.compile(r"[\u4e00-\u9fff]"))
    assert problem.inner_text() != english
    log_in(page)
    page.wait_for_url("**/teach")


@pytest.mark.parametrize(
    ("next_", "landed"),
    [
        ("/teach?from=link", r"/teach\?from=link$"),
        ("https://evil.example/teach", r"/teach$"),
        ("//evil.example/x", r"/teach$"),
        ("/\\evil.example", r"/teach$"),
        ("javascript:window.__pwn=1", r"/teach$"),
        ("/login?next=/login", r"/teach$"),
        # Paths of this server whose beginning would name a host.
        ("/.//evil.example/x", r"//evil\.example/x$"),
        ("/a/..//evil.example/x", r"//evil\.example/x$"),
        ("/a/%2e%2e//evil.example/x", r"//evil\.example/x$"),
        ("/.\\/evil.example/x", r"//evil\.example/x$"),
        ("ORIGIN//evil.example/x", r"//evil\.example/x$"),
        ("//evil.example@HOST//evil.example/x", r"//evil\.example/x$"),
        ("blob:ORIGIN/x", r"/teach$"),
    ],
)
def test_the_login_leads_back_but_never_away(
    visit: Visit, school: School, next_: str, landed: str
) -> None:
    page = visit("/login")
    host = school.address.removeprefix("http://")
    next_ = next_.replace("ORIGIN", school.address).replace("HOST", host)
    page.evaluate(
        "(next) => history.replaceState({}, '', '/login?' + new URLSearchParams({next}))", next_
    )
    log_in(page)
    expect(page).to_have_url(re.compile("^http://127.0.0.1:[0-9]+" + landed))


def test_a_used_link_and_an_unknown_code_say_so(visit: Visit, school: School) -> None:
    page = visit(school.first_link)
    expect(page.get_by_role("heading")).to_have_text("This link works no more")
    page = visit("/join/ZZZZ9999", locale="zh-CN")
    expect(page.locator(".entry-text")).to_contain_text("无法加入任何课程")
    expect(page.locator("form")).to_have_count(0)


def test_a_field_that_is_wrong_is_named_and_nothing_is_lost(visit: Visit, school: School) -> None:
    course = make_course(visit("/teach", storage_state=school.teacher), "Entry")
    page = visit(f"/join/{course['join_code']}")
    page.get_by_label("Your name").fill("Mei")
    page.get_by_label("Login").fill("mei")
    page.get_by_label("Password").fill("short")
    page.get_by_role("button", name="Make the account and join").click()
    expect(page.locator("[aria-invalid]")).to_have_attribute("name", "password")
    expect(page.get_by_label("Your name")).to_have_value("Mei")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Make the account and join").click()
    expect(page.locator("#course-title")).to_have_text("Entry")


def test_an_account_joins_another_course_by_one_click(visit: Visit, school: School) -> None:
    teacher = visit("/teach", storage_state=school.teacher)
    first, second = make_course(teacher, "First"), make_course(teacher, "Second")
    page = visit("/login")
    join(page, first, "Ann", "ann")
    page.goto(f"/join/{second['join_code']}")
    expect(page.locator(".entry-text")).to_have_text("You are logged in as Ann.")
    page.get_by_role("button", name="Join the course").click()
    expect(page.locator("#course-title")).to_have_text("Second")
    page.locator(".course-select").select_option(label="First")
    expect(page.locator("#course-title")).to_have_text("First")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto("/")
    expect(page).to_have_url(re.compile(r"/login\?next="))


def test_who_is_in_no_course_is_told_how_to_join_one(visit: Visit, school: School) -> None:
    teacher = visit("/teach", storage_state=school.teacher)
    course = make_course(teacher, "Left")
    for other in teacher.request.get("/api/courses").json()["courses"]:
        closed = teacher.request.patch(f"/api/courses/{other['id']}", data={"is_open": False})
        assert closed.ok
    page = visit("/login")
    join(page, course, "Bo", "bo")
    (person,) = [
        one
        for one in teacher.request.get(f"/api/courses/{course['id']}/people").json()["people"]
        if one["login"] == "bo"
    ]
    gone = teacher.request.delete(f"/api/courses/{course['id']}/people/{person['id']}")
    assert gone.status == 204
    page.reload()
    expect(page.locator(".welcome-title")).to_have_text("You are in no course yet")
    expect(page.locator(".dock")).to_be_hidden()
    page.locator(".welcome").get_by_role("link", name="Join a course").click()
    expect(page.get_by_label("Course code")).to_be_focused()


def test_a_person_takes_their_data_along_and_leaves(visit: Visit, school: School) -> None:
    teacher = visit("/teach", storage_state=school.teacher)
    course = make_course(teacher, "Own data")
    page = visit("/login")
    join(page, course, "Ida", "ida")
    ask(page, "Is the word zebrafish kept of me?")
    page.get_by_role("link", name="Ida").click()
    page.get_by_label("Your name").fill("Ida B.")
    page.get_by_role("button", name="Save the name").click()
    expect(page.get_by_role("status").first).to_have_text("Saved")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download all that is kept of you").click()
    kept = download.value.path().read_text("utf-8")
    assert "zebrafish" in kept
    assert "Ida B." in kept
    page.get_by_text("Delete everything…").click()
    removal = page.locator(".form-danger")
    removal.get_by_label("Password").fill("not this one")
    removal.get_by_role("button", name="Delete for ever").click()
    expect(removal.locator(".form-problem")).to_be_visible()
    removal.get_by_label("Password").fill(PASSWORD)
    removal.get_by_role("button", name="Delete for ever").click()
    page.wait_for_url("**/login")
    records = teacher.request.get(f"/api/courses/{course['id']}/records").json()
    assert records["counts"]["total"] == 0
