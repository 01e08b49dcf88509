"""A teacher and a student, end to end: from the one-time link to the exported log."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import docx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.school import PASSWORD, School, ask, open_school, visits
from tests.server.app.materials.made_files import docx_file, paragraph_lines, pdf

SLICE = "Under round robin every process gets a time slice of 20 ms in turn."
PROGRAM = "A process is a program in execution, with its memory and its files."
DEADLINE = "第三次实验的提交截止时间是第8周周五23:59，请提交到课程网站。"
STUDENT = "王小明"
NOTE = "Which week is meant? 看不懂"


@pytest.fixture
def fresh_school(tmp_path: Path) -> Iterator[School]:
    with open_school(tmp_path) as school:
        yield school


def write_files(folder: Path) -> list[Path]:
    """A term's folder: five formats, two languages, one text in an old encoding."""
    word = docx.Document()
    word.add_heading("Assessment", 1)
    word.add_paragraph("The written exam counts for sixty percent of the final mark.")
    # Each page is long enough to be a passage of its own.
    created = [
        f"A process is created by step {n} of its parent, and ends by itself." for n in range(16)
    ]
    queued = [
        f"The ready queue number {n} holds processes that wait for the processor."
        for n in range(16)
    ]
    pages = [
        [(20, 72, 760, "Processes"), *paragraph_lines([PROGRAM, *created])],
        [(20, 72, 760, "Scheduling"), *paragraph_lines([SLICE, *queued])],
    ]
    files = {
        "lecture-03-processes.pdf": pdf(pages, title="Processes and scheduling"),
        "实验三.txt": f"实验三：进程调度\n\n{DEADLINE}\n".encode("gb18030"),
        "syllabus.md": b"# Staff\n\nThe office hours of Dr. Lin are on Tuesday in room B204.\n",
        "assessment.docx": docx_file(word),
        "seats.csv": b"student,seat\nThe exam seat of Zhang Wei is in row K.,K17\n",
    }
    paths = []
    for name, content in files.items():
        paths.append(folder / name)
        paths[-1].write_bytes(content)
    return paths


def enter_as_first_teacher(page: Page) -> None:
    page.get_by_label("Your name").fill("Dr. Lin")
    page.get_by_label("Login").fill("lin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Make the account").click()
    page.wait_for_url("**/teach")


def create_course(page: Page) -> None:
    page.get_by_label("Title", exact=True).fill("Operating systems")
    page.get_by_role("button", name="Create the course").click()
    expect(page.locator("#course-name")).to_have_text("Operating systems")


def upload_and_hide(page: Page, files: list[Path]) -> None:
    page.set_input_files("#files", files)
    expect(page.locator(".upload[data-state=ready]")).to_have_count(len(files))
    expect(page.locator(".material[data-state=ready]")).to_have_count(len(files))
    seats = page.locator(".material").filter(has_text="seats.csv")
    seats.get_by_label("Shown to students").select_option("hidden")
    expect(seats.locator(".row-note")).to_have_text("Saved")
    expect(seats.locator(".badge")).to_have_text("Hidden")


def try_questions(page: Page) -> None:
    page.get_by_role("link", name="Try a question").click()
    question = page.get_by_label("Question", exact=True)
    question.fill("How long is the time slice of round robin?")
    question.press("Enter")
    first = page.locator(".hit").first
    expect(page.locator(".verdict")).to_contain_text("Found")
    expect(first).to_contain_text(SLICE)
    expect(first).to_contain_text("page 2")
    expect(first).to_contain_text("Given to the model")
    question.fill("Which exam seat has Zhang Wei?")
    question.press("Enter")
    hidden = page.locator(".hit").filter(has_text="K17")
    expect(hidden.locator(".badge").first).to_have_text("Hidden")


def join_by_code(page: Page, code: str) -> None:
    expect(page).to_have_url(re.compile(r"/login\?next="))
    page.get_by_role("link", name="I have a course code").click()
    page.get_by_label("Course code").fill(f"{code[:4].lower()}-{code[4:]}")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading")).to_contain_text("Operating systems")
    page.get_by_label("Your name").fill(STUDENT)
    page.get_by_label("Login").fill("xiaoming")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Make the account and join").click()
    expect(page.locator("#course-title")).to_have_text("Operating systems")


def ask_and_open_a_citation(page: Page) -> None:
    text = ask(page, "How long is the time slice of round robin?")
    assert text.startswith(SLICE)
    assert "9" not in text.removeprefix(SLICE)
    answer = page.locator(".answer").last
    expect(answer.locator(".cite")).to_have_text(["1"])
    answer.locator(".cite").click()
    panel = page.locator("#source-panel")
    expect(panel.locator(".panel-locator")).to_contain_text("page 2")
    expect(panel.locator("mark").first).to_be_in_viewport()
    assert "".join(panel.locator("mark").all_text_contents()).strip() == SLICE
    # The whole file is there, not the passage alone.
    expect(panel.locator(".panel-body")).to_contain_text(PROGRAM)
    page.keyboard.press("Escape")


def ask_in_chinese_and_judge(page: Page) -> None:
    assert ask(page, "第三次实验什么时候截止？").startswith(DEADLINE)
    expect(page.locator(".answer").last.locator(".cite")).to_have_text(["1"])
    answer = page.locator(".answer").last
    answer.get_by_role("button", name="This answer did not help").click()
    answer.get_by_label("What is wrong with it?").fill(NOTE)
    answer.get_by_role("button", name="Send").click()
    expect(answer.locator(".feedback-note")).to_contain_text("Thank you")


def ask_for_what_is_hidden(page: Page) -> None:
    assert "K17" not in ask(page, "Which exam seat has Zhang Wei, row K?")
    expect(page.locator(".answer").last).not_to_contain_text("seat of Zhang")


def read_and_export_the_log(page: Page) -> None:
    page.get_by_role("link", name="Log", exact=True).click()
    expect(page.locator(".record")).to_have_count(3)
    page.get_by_role("button", name="Thumbs down").click()
    record = page.locator(".record")
    expect(record).to_have_count(1)
    expect(record).to_contain_text("第三次实验什么时候截止？")
    expect(record).to_contain_text(NOTE)
    expect(page.locator("main")).not_to_contain_text(STUDENT)
    expect(page).to_have_url(re.compile(r"\?kind=down$"))

    with page.expect_download() as download:
        page.get_by_role("link", name="Export as JSONL").click()
    lines = download.value.path().read_text("utf-8").splitlines()
    (exported,) = [json.loads(line) for line in lines]
    assert exported["question"] == "第三次实验什么时候截止？"
    assert exported["answer"].startswith(DEADLINE)
    assert "[9]" not in exported["answer"]
    assert exported["feedback"]["note"] == NOTE

    with page.expect_download() as download:
        page.get_by_role("link", name="Export as CSV").click()
    table = list(csv.reader(io.StringIO(download.value.path().read_text("utf-8-sig"))))
    assert len(table) == 2
    assert {"第三次实验什么时候截止？", NOTE} <= set(table[1])
    assert STUDENT not in str(lines) + str(table)

    with page.expect_popup() as popup:
        record.get_by_role("link", name="Print view").click()
    expect(popup.value.locator("body")).to_contain_text(DEADLINE)
    expect(popup.value.locator("body")).to_contain_text(NOTE)


def remove_the_student(teacher: Page, student: Page) -> None:
    teacher.get_by_role("link", name="People").click()
    teacher.get_by_role("button", name=f"Remove: {STUDENT}").click()
    teacher.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(teacher.locator(".person")).to_have_count(1)
    expect(student.locator("#problem")).to_have_text("You are no longer in this course.")
    expect(student.locator(".answer")).to_have_count(0)


def test_a_teacher_and_a_student_from_the_link_to_the_export(
    browser: Browser, fresh_school: School, tmp_path: Path
) -> None:
    files = tmp_path / "term"
    files.mkdir()
    with visits(browser, fresh_school.address) as visit:
        teacher = visit(fresh_school.first_link)
        enter_as_first_teacher(teacher)
        create_course(teacher)
        upload_and_hide(teacher, write_files(files))
        try_questions(teacher)
        teacher.get_by_role("link", name="People").click()
        code = teacher.locator(".join-code").inner_text()

        student = visit("/")
        join_by_code(student, code)
        ask_and_open_a_citation(student)
        ask_in_chinese_and_judge(student)
        ask_for_what_is_hidden(student)

        read_and_export_the_log(teacher)
        remove_the_student(teacher, student)
