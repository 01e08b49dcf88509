"""Who works by keyboard stays where they were when what they pressed has gone, or waits."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.school import Visit, join, make_course, open_tab, upload
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening

NOTES = b"# Paging\n\nA page table maps the pages of a process to frames of memory.\n"
MORE = b"# Swapping\n\nPages that are rarely used are swapped out to a disk.\n"
GREETING = "课程说明：每周三下午答疑。"


@pytest.fixture
def course(teacher: Page) -> dict[str, Any]:
    return make_course(teacher, "Keys")


def press(page: Page, name: str, *, confirms: bool = False) -> None:
    """Presses the button by keyboard, and then the one of the same name that it asks with."""
    page.get_by_role("button", name=name, exact=True).press("Enter")
    if confirms:
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name=name.partition(":")[0], exact=True).press("Enter")
        expect(dialog).to_have_count(0)


def test_the_neighbour_of_a_material_that_is_deleted(teacher: Page, course: dict[str, Any]) -> None:
    upload(teacher, course, "first.md", NOTES)
    upload(teacher, course, "second.md", MORE)
    open_tab(teacher, course)
    rows = teacher.locator(".material")
    expect(rows).to_have_count(2)
    for rest in (1, 0):
        rows.last.get_by_role("button", name="Delete").press("Enter")
        teacher.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
        expect(rows).to_have_count(rest)
        expect(rows if rest else teacher.locator("#files")).to_be_focused()


def test_people_are_changed_one_after_the_other(
    teacher: Page, course: dict[str, Any], visit: Visit
) -> None:
    join(visit(), course, "Ann", "ann.keys")
    join(visit(), course, "Ben", "ben.keys")
    open_tab(teacher, course, "people")
    press(teacher, "Disable: Ben")
    expect(teacher.get_by_role("button", name="Enable: Ben")).to_be_focused()
    press(teacher, "Remove: Ben", confirms=True)
    expect(teacher.locator(".person")).to_have_count(2)
    expect(teacher.get_by_role("heading", name="1 student")).to_be_focused()


def test_the_code_of_a_course_is_closed_and_opened(teacher: Page, course: dict[str, Any]) -> None:
    open_tab(teacher, course, "people")
    code = teacher.locator(".join-code")
    before = code.text_content()
    press(teacher, "New code", confirms=True)
    expect(code).not_to_have_text(before or "")
    expect(teacher.get_by_role("button", name="New code")).to_be_focused()
    press(teacher, "Close the course", confirms=True)
    expect(teacher.get_by_role("button", name="Make a code")).to_be_focused()
    press(teacher, "Make a code")
    expect(teacher.get_by_role("button", name="Close the course")).to_be_focused()


def test_settings_are_saved_and_a_course_archived(teacher: Page, course: dict[str, Any]) -> None:
    open_tab(teacher, course, "settings")
    held: list[Route] = []
    teacher.route(
        "**/api/courses/*",
        lambda route: held.append(route) if route.request.method == "PATCH" else route.fallback(),
    )
    save = teacher.get_by_role("button", name="Save", exact=True)
    with teacher.expect_request("**/api/courses/*"):
        save.press("Enter")
    expect(save).to_be_disabled()
    expect(save).to_be_focused()
    # Once is enough.
    save.press("Enter")
    for route in held:
        route.fallback()
    expect(teacher.locator(".row-note")).to_have_text("Saved")
    assert len(held) == 1
    expect(save).to_be_focused()
    teacher.unroute_all()
    press(teacher, "Archive the course", confirms=True)
    expect(teacher.get_by_role("button", name="Open it again")).to_be_focused()


def test_what_goes_wrong_in_a_preview_is_told_in_it(teacher: Page, course: dict[str, Any]) -> None:
    upload(teacher, course, "说明.txt", GREETING.encode("gb18030"))
    open_tab(teacher, course)
    teacher.get_by_role("button", name="Preview").click()
    dialog = teacher.get_by_role("dialog")
    problem = dialog.get_by_role("alert")
    encodings = dialog.get_by_label("Encoding")
    found = encodings.input_value()
    options = encodings.locator("option").all_text_contents()
    encodings.select_option(next(one for one in options if one != found))
    use = dialog.get_by_role("button", name="Read the file in this encoding")
    refuse_once(teacher, "**/api/materials/*")
    use.press("Enter")
    expect(problem).to_have_text("Not now.")
    expect(use).to_be_focused()
    refuse_once(teacher, "**/api/materials/*/passages")
    summary = dialog.locator("summary")
    with teacher.expect_response("**/passages"):
        summary.press("Enter")
    expect(problem).to_be_visible()
    expect(problem).to_have_text("Not now.")
    expect(dialog.locator(".passage-list")).to_have_count(0)
    summary.press("Enter")
    summary.press("Enter")
    expect(dialog.locator(".passage-list li")).to_have_count(1)
    expect(problem).to_be_hidden()
    use.press("Enter")
    expect(dialog).to_have_count(0)


def refuse_once(page: Page, address: str) -> None:
    """The next request of this address is refused with "Not now."."""
    refusal = {"error": {"message": "Not now.", "code": "forbidden"}}
    page.route(address, lambda route: route.fulfill(status=403, json=refusal), times=1)


def test_a_note_on_an_answer_is_written_on_when_its_figures_come(
    chat: ChatPage, peer: ScriptedPeer
) -> None:
    """The answer is read again, as after a lost connection, and more is known of it then."""
    peer.answer([*opening(), *deltas("One"), finish()])
    chat.ask("Question 1")
    chat.wait_end()
    chat.answer.get_by_role("button", name="This answer did not help").click()
    note = chat.answer.get_by_role("textbox")
    note.press_sequentially("wrong ")
    usage = {"prompt_tokens": 4321, "completion_tokens": 1, "total_tokens": 4322}
    question = {"id": "q1", "parent": None, "role": "user", "text": "Question 1"}
    answer = {"id": "a1", "parent": "q1", "role": "assistant", "state": "finished", "text": "One"}
    told = {**answer, "finish_detail": {"type": "eos"}, "usage": usage}
    stored = {"id": "c1", "course": None, "title": "Other", "messages": [question, told]}
    chat.page.route(
        "**/api/conversations/c1*",
        lambda route: route.fulfill(json={**stored, "active_run": None}),
    )
    foot = chat.answer.locator(".answer-foot").element_handle()
    peer.tell({"type": "changed", "conversation": "c1", "title": "Other"})
    chat.page.wait_for_function("(foot) => !foot.isConnected", arg=foot)
    expect(note).to_be_focused()
    chat.page.keyboard.type("room")
    expect(note).to_have_value("wrong room")
