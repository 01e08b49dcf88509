"""What a teacher is writing, and what was told them, outlives what the page reads meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Page, Response, Route, expect

from tests.e2e.browser.school import School, Visit, ask, join, make_course, open_tab, upload
from tests.server.app.materials.made_files import zip_of

NOTES = b"# Paging\n\nA page table maps the pages of a process to frames of memory.\n"
MORE = b"# Swapping\n\nPages that are rarely used are swapped out to a disk.\n"
SHANGHAI = "Asia/Shanghai"
LISTED = "**/api/courses/*/materials"
SETTLED = "() => new Promise((end) => requestAnimationFrame(() => requestAnimationFrame(end)))"
"""What a reply leads to has been drawn."""

Change = Callable[[list[dict[str, Any]]], None]


@pytest.fixture
def course(teacher: Page) -> dict[str, Any]:
    return make_course(teacher, "Storage", timezone=SHANGHAI)


def alter_list(page: Page, change: Change) -> None:
    """Lets `change` do something to the materials whenever they are read."""

    def alter(route: Route) -> None:
        if route.request.method != "GET":
            route.fallback()
            return
        reply = route.fetch()
        body = reply.json()
        change(body["materials"])
        route.fulfill(response=reply, json=body)

    page.route(LISTED, alter)


def is_list(response: Response) -> bool:
    return response.url.endswith("/materials") and response.request.method == "GET"


def wait_for_reading(page: Page) -> None:
    """Returns when the list was read twice: the second reading began after the call."""
    for _ in range(2):
        with page.expect_response(is_list) as response:
            pass
        response.value.finished()
    page.evaluate(SETTLED)


def set_state(name: str, state: str) -> Change:
    def change(materials: list[dict[str, Any]]) -> None:
        for material in materials:
            if material["name"] == name:
                material["state"] = state

    return change


def refusal(text: str) -> dict[str, Any]:
    return {"error": {"message": text, "code": "forbidden"}}


def test_the_day_that_is_chosen_is_the_day_that_is_shown(
    visit: Visit, school: School, course: dict[str, Any]
) -> None:
    """Days are the course's, wherever the reader is."""
    page = visit(storage_state=school.teacher, timezone_id="America/Los_Angeles")
    upload(page, course, "notes.md", NOTES)
    open_tab(page, course)
    row = page.locator(".material")
    row.get_by_label("Shown to students").select_option("from")
    row.get_by_label("Shown from").fill("2199-10-01")
    expect(row.locator(".row-note")).to_have_text("Saved")
    expect(row.get_by_label("Shown from")).to_have_value("2199-10-01")
    stored = page.request.get(f"/api/courses/{course['id']}/materials").json()["materials"]
    assert stored[0]["visible_from"].startswith("2199-09-30T16:00")
    page.reload()
    expect(row.get_by_label("Shown from")).to_have_value("2199-10-01")


def test_the_log_tells_moments_of_the_days_it_is_looked_through_by(
    visit: Visit, school: School, course: dict[str, Any]
) -> None:
    student = visit("/login")
    join(student, course, "Lea", f"lea-{course['slug']}")
    ask(student, "What is paging?")
    page = visit(storage_state=school.teacher, timezone_id="America/Los_Angeles")
    open_tab(page, course, "log")
    shown = page.locator(".record time")
    there = shown.evaluate(
        """(node, timeZone) => new Intl.DateTimeFormat('en',
             {dateStyle: 'medium', timeStyle: 'short', timeZone},
           ).format(new Date(node.dateTime))""",
        SHANGHAI,
    )
    expect(shown).to_have_text(there)


def test_a_time_zone_that_the_browser_does_not_know_is_read_as_utc(teacher: Page) -> None:
    days = teacher.evaluate(
        """async (zones) => {
             const main = document.querySelector('script[type="module"]').src;
             const {dayIn, zoneOf} = await import(new URL('./dates.js', main));
             const time = '2026-09-30T16:00:00Z';
             return zones.map((timezone) => dayIn(time, zoneOf({timezone})));
           }""",
        [SHANGHAI, "No/Where", None, "America/New_York"],
    )
    assert days == ["2026-10-01", "2026-09-30", "2026-09-30", "2026-09-30"]


def test_what_is_being_written_stays_while_the_list_is_read_again(
    teacher: Page, course: dict[str, Any]
) -> None:
    upload(teacher, course, "first.md", NOTES)
    upload(teacher, course, "second.md", MORE)
    state = {"now": "parsing"}
    alter_list(teacher, lambda materials: set_state("second.md", state["now"])(materials))
    open_tab(teacher, course)
    row = teacher.locator(".material").filter(has_text="first.md")
    other = teacher.locator(".material").filter(has_text="second.md")
    title = row.get_by_label("Title")
    title.fill("Half a ti")
    wait_for_reading(teacher)
    expect(title).to_be_focused()
    wait_for_reading(teacher)
    expect(title).to_be_focused()
    expect(title).to_have_value("Half a ti")
    teacher.keyboard.type("tle")
    state["now"] = "ready"
    expect(other.locator(".badge")).to_have_text("Shown")
    title.press("Enter")
    expect(row.locator(".row-note")).to_have_text("Saved")
    teacher.unroute(LISTED)
    teacher.reload()
    expect(title).to_have_value("Half a title")


def test_the_focus_stays_on_a_button_and_its_row_is_brought_up_to_date(
    teacher: Page, course: dict[str, Any]
) -> None:
    upload(teacher, course, "first.md", NOTES)
    state = {"now": "failed"}
    alter_list(teacher, lambda materials: set_state("first.md", state["now"])(materials))
    teacher.route("**/retry", lambda route: route.fulfill(status=202, json={}))
    open_tab(teacher, course)
    row = teacher.locator(".material")
    expect(row.locator(".badge")).to_have_text("Could not be read")
    expect(row.get_by_label("Kind")).to_be_hidden()
    state["now"] = "parsing"
    row.get_by_role("button", name="Read again").click()
    expect(row.locator(".badge")).to_have_text("Reading…")
    state["now"] = "ready"
    expect(row.locator(".badge")).to_have_text("Shown")
    expect(row.get_by_label("Kind")).to_be_visible()
    expect(row.get_by_role("button", name="Preview")).to_be_focused()


def test_a_value_that_was_refused_stays_until_it_is_mended(
    teacher: Page, course: dict[str, Any]
) -> None:
    upload(teacher, course, "first.md", NOTES)
    upload(teacher, course, "second.md", MORE)
    alter_list(teacher, set_state("second.md", "parsing"))
    open_tab(teacher, course)
    row = teacher.locator(".material").filter(has_text="first.md")
    week = row.get_by_label("Week")
    week.fill("99")
    week.press("Tab")
    expect(row.locator(".row-note")).to_contain_text("60")
    teacher.locator("#content").focus()
    wait_for_reading(teacher)
    expect(week).to_have_value("99")
    expect(row.locator(".row-note")).to_contain_text("60")
    week.fill("9")
    week.press("Tab")
    expect(row.locator(".row-note")).to_have_text("Saved")


def test_a_row_that_is_written_in_keeps_its_place_among_others(
    teacher: Page, course: dict[str, Any]
) -> None:
    for name in ("a.md", "b.md", "c.md"):
        upload(teacher, course, name, NOTES + name.encode())
    order = {"now": ["a.md", "b.md", "c.md"]}

    def arrange(materials: list[dict[str, Any]]) -> None:
        known = {material["name"]: material for material in materials}
        known["c.md"]["state"] = "parsing"
        materials[:] = [known[name] for name in order["now"]]

    alter_list(teacher, arrange)
    open_tab(teacher, course)
    facts = teacher.locator(".material-facts")
    title = teacher.locator(".material").filter(has_text="b.md").get_by_label("Title")
    title.fill("Writing")
    order["now"] = ["c.md", "b.md", "a.md"]
    wait_for_reading(teacher)
    expect(facts).to_have_text([re.compile(f"^{re.escape(name)} ") for name in order["now"]])
    expect(title).to_be_focused()
    order["now"] = ["c.md", "a.md"]
    wait_for_reading(teacher)
    expect(teacher.locator(".material")).to_have_count(2)


def test_what_comes_late_for_a_tab_is_not_drawn_over_another(
    teacher: Page, course: dict[str, Any]
) -> None:
    open_tab(teacher, course)
    held: list[Route] = []
    teacher.route("**/people", lambda route: held.append(route))
    with teacher.expect_request("**/people"):
        teacher.get_by_role("link", name="People").click()
    teacher.get_by_role("link", name="Settings").click()
    title = teacher.get_by_label("Title", exact=True)
    title.fill("Storage and disks")
    with teacher.expect_response("**/people") as response:
        held[0].continue_()
    response.value.finished()
    teacher.evaluate(SETTLED)
    expect(title).to_have_value("Storage and disks")
    expect(title).to_be_focused()
    expect(teacher.locator(".people")).to_have_count(0)


def test_a_refusal_stays_told_when_what_it_is_about_is_read_again(
    visit: Visit, teacher: Page, course: dict[str, Any]
) -> None:
    student = visit("/login")
    join(student, course, "Kim", f"kim-{course['slug']}")
    open_tab(teacher, course, "people")
    words = "This student is in courses of other teachers too."
    teacher.route("**/people/*", lambda route: route.fulfill(status=403, json=refusal(words)))
    with teacher.expect_response("**/people") as response:
        teacher.get_by_role("button", name="Disable").click()
    response.value.finished()
    teacher.evaluate(SETTLED)
    expect(teacher.locator("#problem")).to_be_visible()
    expect(teacher.locator("#problem")).to_have_text(words)
    teacher.unroute("**/people/*")
    teacher.get_by_role("button", name="Disable").click()
    expect(teacher.locator(".person .badge-red")).to_be_visible()
    expect(teacher.locator("#problem")).to_be_hidden()


def test_a_refusal_outlives_the_list_s_readings_but_not_their_own_trouble(
    teacher: Page, course: dict[str, Any]
) -> None:
    upload(teacher, course, "first.md", NOTES)
    alter_list(teacher, set_state("first.md", "parsing"))
    open_tab(teacher, course)
    problem = teacher.locator("#problem")
    is_broken = {"now": True}

    def fail(route: Route) -> None:
        if is_broken["now"] and route.request.method == "GET":
            route.fulfill(status=503, json=refusal("Not now."))
        else:
            route.fallback()

    teacher.route(LISTED, fail)
    expect(problem).to_be_visible()
    expect(problem).to_have_text("Not now.")
    is_broken["now"] = False
    expect(problem).to_be_hidden()
    teacher.route(
        "**/api/materials/*",
        lambda route: route.fulfill(status=403, json=refusal("It stays.")),
    )
    teacher.get_by_role("button", name="Delete").click()
    teacher.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(problem).to_be_visible()
    expect(problem).to_have_text("It stays.")
    is_broken["now"] = True
    wait_for_reading(teacher)
    expect(problem).to_be_visible()
    expect(problem).to_have_text("It stays.")
    is_broken["now"] = False
    wait_for_reading(teacher)
    expect(problem).to_be_visible()
    expect(problem).to_have_text("It stays.")


def hide_the_end(page: Page) -> None:
    """Lets an upload be answered as if nothing of it were read yet."""

    def hide(route: Route) -> None:
        if route.request.method != "POST":
            route.fallback()
            return
        reply = route.fetch()
        job = reply.json()
        for file in job["files"]:
            file["state"] = "waiting"
        route.fulfill(response=reply, json={**job, "done": 0})

    page.route(LISTED, hide)


def archive() -> FilePayload:
    content = zip_of({"a/first.md": NOTES, "a/second.md": MORE})
    return {"name": "week.zip", "mimeType": "application/zip", "buffer": content}


def test_an_upload_is_followed_although_the_server_could_not_be_asked(
    teacher: Page, course: dict[str, Any]
) -> None:
    open_tab(teacher, course)
    hide_the_end(teacher)
    # 0: no reply comes at all.
    statuses = [503, 429, 0]

    def fail(route: Route) -> None:
        status = statuses.pop(0) if statuses else 200
        if status == 0:
            route.abort()
        elif status == 200:
            route.fallback()
        else:
            route.fulfill(status=status)

    teacher.route("**/api/imports/*", fail)
    teacher.set_input_files("#files", [archive()])
    expect(teacher.locator(".upload[data-state=ready]")).to_have_count(2)
    expect(teacher.locator(".upload-clear")).to_be_visible()
    assert statuses == []


def test_an_upload_that_cannot_be_followed_is_left_to_the_list(
    teacher: Page, course: dict[str, Any]
) -> None:
    open_tab(teacher, course)
    hide_the_end(teacher)
    teacher.route("**/api/imports/*", lambda route: route.fulfill(status=404, json={}))
    teacher.set_input_files("#files", [archive()])
    rows = teacher.locator(".upload[data-state=unfollowed]")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("Followed no further")
    expect(teacher.locator(".material[data-state=ready]")).to_have_count(2)
    teacher.locator(".upload-clear").get_by_role("button").click()
    expect(teacher.locator(".upload")).to_have_count(0)


def test_the_log_keeps_the_focus_and_what_is_written(
    visit: Visit, teacher: Page, course: dict[str, Any]
) -> None:
    student = visit("/login")
    join(student, course, "Noa", f"noa-{course['slug']}")
    ask(student, "Is the word zebrafish in the materials?")

    def page_by_page(route: Route) -> None:
        url = route.request.url
        reply = route.fetch(url=url.replace("before=older", "before="))
        route.fulfill(
            response=reply, json={**reply.json(), "next": None if "older" in url else "older"}
        )

    teacher.route("**/records?*", page_by_page)
    open_tab(teacher, course, "log")
    chip = teacher.locator(".chip").nth(1)
    chip.click()
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(chip).to_be_focused()
    words = teacher.get_by_label("Words")
    words.fill("zebra")
    chip.focus()
    teacher.keyboard.press("Space")
    expect(chip).to_have_attribute("aria-pressed", "false")
    expect(chip).to_be_focused()
    expect(words).to_have_value("zebra")
    with teacher.expect_response("**/records?*text=zebra*"):
        words.press("Enter")
    teacher.evaluate(SETTLED)
    expect(words).to_be_focused()
    words.fill("")
    words.press("Enter")
    expect(teacher.locator(".record")).to_have_count(1)
    teacher.get_by_role("button", name="Show older ones").focus()
    teacher.keyboard.press("Enter")
    expect(teacher.locator(".record")).to_have_count(2)
    # There are no older ones to be shown: what came last is read on.
    expect(teacher.locator(".record").last).to_be_focused()
