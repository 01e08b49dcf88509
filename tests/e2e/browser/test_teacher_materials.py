"""A teacher's materials: files go in, are looked at, edited and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.e2e.browser.school import School, Visit, make_course, upload
from tests.server.app.materials.made_files import zip_of

NOTES = b"# Paging\n\nA page table maps the pages of a process to frames of memory.\n"
GREETING = "课程说明：每周三下午答疑。"


def payload(name: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


@pytest.fixture
def course(visit: Visit, school: School) -> dict[str, Any]:
    return make_course(
        visit("/teach", storage_state=school.teacher), "Materials", title_zh="资料课"
    )


def open_course(visit: Visit, school: School, course: dict[str, Any], **options: Any) -> Page:
    return visit(f"/teach/{course['slug']}", storage_state=school.teacher, **options)


def test_a_bad_file_is_told_and_the_others_go_in(
    visit: Visit, school: School, course: dict[str, Any]
) -> None:
    page = open_course(visit, school, course)
    page.set_input_files(
        "#files",
        [
            payload("broken.pdf", b"this is no PDF"),
            payload("week2.zip", zip_of({"a/lab2.md": NOTES, "a/lab3.txt": GREETING.encode()})),
        ],
    )
    failed = page.locator(".upload[data-state=failed]")
    expect(failed).to_contain_text("broken.pdf is damaged")
    # A zip becomes what it holds.
    expect(page.locator(".upload[data-state=ready]")).to_have_count(2)
    expect(page.locator(".material[data-state=ready]")).to_have_count(2)
    expect(page.locator(".material[data-state=failed] .material-error")).to_contain_text("damaged")
    expect(page.locator("#course-facts")).to_contain_text("3 materials")
    page.get_by_role("button", name="中文").click()
    expect(failed).to_contain_text("已损坏")
    page.set_input_files("#files", [payload("again.md", NOTES)])
    expect(page.locator(".upload[data-state=duplicate]")).to_contain_text("课程中已有此文件")
    expect(page.locator(".material")).to_have_count(3)


def test_fields_are_saved_as_they_change(
    visit: Visit, school: School, course: dict[str, Any]
) -> None:
    page = open_course(visit, school, course)
    upload(page, course, "lecture-05-paging.md", NOTES)
    page.reload()
    row = page.locator(".material")
    expect(row.get_by_label("Kind")).to_have_value("lecture")
    row.get_by_label("Title").fill("Paging and swapping")
    row.get_by_label("Title").press("Enter")
    row.get_by_label("Week").fill("7")
    row.get_by_label("Kind").select_option("exam")
    expect(row.locator(".row-note")).to_have_text("Saved")
    row.get_by_label("Shown to students").select_option("from")
    row.get_by_label("Shown from").fill("2199-01-01")
    expect(row.locator(".badge")).to_have_text("Hidden")
    page.reload()
    expect(row.get_by_label("Title")).to_have_value("Paging and swapping")
    expect(row.get_by_label("Week")).to_have_value("7")
    expect(row.get_by_label("Kind")).to_have_value("exam")
    expect(row.get_by_label("Shown from")).to_have_value("2199-01-01")
    row.get_by_label("Week").fill("99")
    row.get_by_label("Week").press("Tab")
    expect(row.locator(".row-note")).to_contain_text("60")
    page.reload()
    expect(row.get_by_label("Week")).to_have_value("7")


def test_the_preview_shows_the_text_in_other_encodings_and_the_passages(
    visit: Visit, school: School, course: dict[str, Any]
) -> None:
    page = open_course(visit, school, course)
    upload(page, course, "说明.txt", GREETING.encode("gb18030"))
    page.reload()
    page.get_by_role("button", name="Preview").click()
    text = page.locator(".preview-text")
    expect(text).to_have_text(GREETING)
    page.get_by_text("Passages that can be found: 1").click()
    expect(page.locator(".passage-list li")).to_contain_text(GREETING)
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


def test_nothing_in_a_material_turns_the_preview_s_text_round(
    visit: Visit, school: School, course: dict[str, Any]
) -> None:
    page = open_course(visit, school, course)
    upload(page, course, "notes.md", "The exam is on \u202e61.03\u202c in A1.".encode())
    page.reload()
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("Passages that can be found: 1").click()
    for shown in (page.locator(".preview-text"), page.locator(".passage-list .passage-text")):
        expect(shown).to_have_text("The exam is on 61.03 in A1.")


def test_the_file_can_be_had_as_it_came(
    visit: Visit, school: School, course: dict[str, Any]
) -> None:
    page = open_course(visit, school, course)
    upload(page, course, "notes.md", NOTES)
    page.reload()
    with page.expect_download() as download:
        page.locator(".material").get_by_role("link", name="Original file").click()
    assert download.value.path().read_bytes() == NOTES


def test_a_teacher_sees_how_the_server_is_doing(visit: Visit, school: School) -> None:
    page = visit("/teach", storage_state=school.teacher)
    card = page.locator(".server-card")
    expect(card).to_contain_text("quoting")
    told = page.request.get("/api/server").json()
    expect(card.locator("dd").last).to_have_text(told["version"])
    expect(card).to_contain_text("0 under way, 0 waiting")
    page.get_by_role("button", name="中文").click()
    expect(card.get_by_role("heading")).to_have_text("服务器")
    expect(card).to_contain_text("0 个进行中，0 个等待模型")


def test_deleting_asks_first(visit: Visit, school: School, course: dict[str, Any]) -> None:
    page = open_course(visit, school, course)
    upload(page, course, "notes.md", NOTES)
    page.reload()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.locator(".material")).to_have_count(1)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(".material")).to_have_count(0)
    expect(page.locator(".materials")).to_contain_text("No materials yet")


def test_settings_are_kept_and_a_course_ends_only_by_its_name(
    visit: Visit, school: School, course: dict[str, Any]
) -> None:
    page = visit(f"/teach/{course['slug']}/settings", storage_state=school.teacher)
    page.get_by_label("Title", exact=True).fill("Memory")
    page.get_by_label("Questions to begin with").fill("What is paging? | 什么是分页？")
    page.get_by_label("Show names in the log").check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#course-name")).to_have_text("Memory")
    page.reload()
    expect(page.get_by_label("Show names in the log")).to_be_checked()
    expect(page.get_by_label("Questions to begin with")).to_have_value(
        "What is paging? | 什么是分页？"
    )
    page.get_by_role("button", name="Archive the course").click()
    page.get_by_role("dialog").get_by_role("button", name="Archive the course").click()
    expect(page.locator("#course-facts")).to_contain_text("Archived")
    page.get_by_text("Delete the course…").click()
    confirm = page.get_by_label("Write “Memory” to delete it")
    confirm.fill("memo")
    page.get_by_role("button", name="Delete for ever").click()
    expect(page.locator(".form-danger .form-problem")).to_be_visible()
    confirm.fill("Memory")
    page.get_by_role("button", name="Delete for ever").click()
    page.wait_for_url("**/teach")
    expect(page.locator(".course-card").filter(has_text="Memory")).to_have_count(0)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_nothing_is_wider_than_a_phone(
    visit: Visit, school: School, course: dict[str, Any], locale: str
) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "locale": locale}
    page = open_course(visit, school, course, **phone)
    upload(page, course, f"{'a-very-long-name-' * 8}.md", b"# " + b"W" * 300 + b"\n\nText.\n")
    for tab in ("materials", "people", "try", "log", "settings"):
        page.goto(f"/teach/{course['slug']}/{tab}")
        page.wait_for_selector("html.is-ready")
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{tab} is {wide} px too wide"
