"""A source in the middle of a text of eight megabytes: the panel opens at it, and what it costs is
of the part that is shown, not of the whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Response, expect

from tests.e2e.browser.school import School, ask, join, make_course, open_school, upload, visits

NUM_CHARS = 8_000_000
"""As many as a material may have."""
MOST_NODES = 2_500
MOST_BYTES = 80_000
FOUND = "The zeppelin hangar opens on Saturdays at noon for visitors with a blue ticket."
LINE = "{:07d} the pump of hall {} ran at {} degrees and the valve stayed shut.\n"
KINDS = {
    "log.txt": LINE,
    "book.md": f"## A part of it\n\n{LINE}\n",
}


def text_of(pattern: str) -> str:
    """The found sentence in the middle of a text of the full size."""
    lines: list[str] = []
    size = 0
    while size < NUM_CHARS - 200:
        lines.append(pattern.format(len(lines), len(lines) % 97, len(lines) % 211))
        size += len(lines[-1])
    lines[len(lines) // 2] = f"\n{FOUND}\n\n"
    return "".join(lines)[:NUM_CHARS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("large")


@pytest.fixture(scope="module")
def large_school(folder: Path, browser: Browser) -> Iterator[School]:
    with open_school(folder) as school:
        school.enrol_teacher(browser)
        yield school


def enlarge(folder: Path, material: str, text: str) -> None:
    """Gives a stored material another text. To read so much into passages takes half a minute, and
    is no matter of the panel."""
    with closing(sqlite3.connect(folder / "lectern.db", timeout=20)) as database, database:
        database.execute("UPDATE material SET text = ? WHERE id = ?", (text, material))


def opened(student: Page) -> list[Response]:
    """Opens the first citation's material; what the server gave for it."""
    replies: list[Response] = []
    student.on(
        "response", lambda reply: replies.append(reply) if "/api/materials/" in reply.url else None
    )
    student.locator(".answer .cite").first.click()
    panel = student.locator("#source-panel")
    expect(panel.locator(".panel-body .part-earlier")).to_be_visible()
    return replies


@pytest.mark.parametrize("name", KINDS)
def test_the_panel_opens_in_the_middle_of_a_large_text(
    browser: Browser, large_school: School, folder: Path, name: str
) -> None:
    with visits(browser, large_school.address) as visit:
        teacher = visit("/teach", storage_state=large_school.teacher)
        course = make_course(teacher, name)
        material = upload(teacher, course, name, f"{FOUND}\n".encode())
        student = visit("/login")
        join(student, course, "Mia", f"mia-{name}")
        assert FOUND in ask(student, "When does the zeppelin hangar open for visitors?")
        enlarge(folder, material["id"], text_of(KINDS[name]))
        replies = opened(student)
        panel = student.locator("#source-panel")
        mark = panel.locator(".passage-mark").first
        expect(mark).to_contain_text(FOUND)
        expect(mark).to_be_in_viewport()
        sizes = [len(reply.body()) for reply in replies]
        assert 1_000 < sum(sizes) < MOST_BYTES
        num_nodes = student.evaluate(
            """() => { const panel = document.querySelector('#source-panel');
                 const all = document.createTreeWalker(panel);
                 let count = 0;
                 while (all.nextNode()) count += 1;
                 return count; }"""
        )
        assert 5 < num_nodes < MOST_NODES
        # A further part costs as much again, and no more.
        panel.get_by_role("button", name="Show the part that follows").click()
        expect(panel.locator("[aria-disabled=true]")).to_have_count(0)
        assert sum(len(reply.body()) for reply in replies) < 2 * MOST_BYTES
