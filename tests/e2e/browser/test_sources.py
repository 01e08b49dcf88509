"""A citation's passage beside its chip, and the material in the panel: by mouse, keyboard and
touch, Markdown and plain text, a part of a large one at a time."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import Event, ScriptedPeer, deltas, finish, opening, passage

CLOSING = "It closes at nine sharp."
BEFORE = "Nobody reads this far. " * 40
TEXT = f"{BEFORE}The door opens at eight. {CLOSING} Bring a card. {'More follows here. ' * 40}"
ANSWER = "It closes at nine [1]. See also [2]."


class Materials:
    """Stands in for the server's parts of one material; what was asked for is kept."""

    def __init__(self, text: str, format: str, found: str | None, **fields: Any) -> None:
        self.text = text
        self.asked: list[dict[str, str]] = []
        self._fields = {"title": "The whole", "format": format, "has_original": False, **fields}
        start = -1 if found is None else text.index(found)
        self._range = None if found is None else [start, start + len(found)]

    def answer(self, route: Route) -> None:
        asked = {
            key: values[0] for key, values in parse_qs(urlsplit(route.request.url).query).items()
        }
        self.asked.append(asked)
        chars = int(asked["chars"])
        middle = 0 if self._range is None else self._range[0]
        offset = int(asked.get("offset", max(0, middle - chars // 2)))
        # As the server: out to the borders of lines.
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", min(offset + chars, len(self.text)))
        end = len(self.text) if end < 0 else end + 1
        part = {"text": self.text[start:end], "offset": start, "total": len(self.text)}
        found = self._range if "around" in asked else None
        route.fulfill(json={**self._fields, **part, "range": found})


def show(
    open_chat: OpenChat, materials: Materials | None = None, *, text: str = TEXT, **options: Any
) -> ChatPage:
    """A page with a finished answer whose first source is in `materials`."""
    peer = ScriptedPeer()

    def prepare(page: Page) -> None:
        peer.attach_to(page)
        if materials is not None:
            page.route("**/api/materials/**", materials.answer)

    chat = open_chat(before=prepare, **options)
    first: Event = {
        **passage(1),
        "text": text,
        "material": materials and "m1",
        "place": {"page": 4},
    }
    start = text.find(CLOSING)
    marks = [[start, start + len(CLOSING)]] if start >= 0 else []
    named = {"type": "citation", "n": 1, "passage": "p1", "start": 0, "end": 18, "by": "model"}
    citation = {**named, "marks": marks}
    peer.answer([*opening(first, passage(2)), *deltas(ANSWER, 50), citation, finish()])
    chat.question.fill("When?")
    chat.page.get_by_role("button", name="Send").click()
    chat.answers.first.wait_for()
    chat.wait_end()
    return chat


def preview_of(chat: ChatPage) -> Locator:
    return chat.page.locator(".preview")


def test_resting_on_a_chip_shows_what_it_rests_on(open_chat: OpenChat) -> None:
    chat = show(open_chat)
    preview = preview_of(chat)
    expect(preview).to_be_hidden()
    chat.answer.locator(".cite").first.hover()
    expect(preview).to_be_visible()
    expect(preview.locator(".preview-title")).to_have_text("Material 1")
    expect(preview.locator(".preview-locator")).to_have_text("page 4")
    expect(preview.locator("mark")).to_have_text(CLOSING)
    shown = preview.locator(".preview-text").inner_text()
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert len(shown) < 400
    # It can be hovered, and goes when the pointer has left both.
    preview.locator("mark").hover()
    chat.page.wait_for_timeout(500)
    expect(preview).to_be_visible()
    chat.question.hover()
    expect(preview).to_be_hidden()
    # Escape closes it while the pointer stays.
    chat.answer.locator(".cite").first.hover()
    expect(preview).to_be_visible()
    chat.page.keyboard.press("Escape")
    expect(preview).to_be_hidden()
    chat.answer.locator(".cite").first.click()
    expect(chat.page.locator("#source-panel")).to_be_visible()
    expect(preview).to_be_hidden()


def test_the_preview_leaves_the_sentence_in_view(open_chat: OpenChat) -> None:
    """It lay over what one wants to compare it with, with room free below."""
    chat = show(open_chat, text=f"Doors\n\n\nHours\n\n{CLOSING}")
    chip = chat.answer.locator(".cite").first
    chip.hover()
    preview = preview_of(chat)
    expect(preview).to_be_visible()
    box, of_chip = preview.bounding_box(), chip.bounding_box()
    assert box is not None
    assert of_chip is not None
    assert box["y"] >= of_chip["y"] + of_chip["height"]
    assert preview.locator(".preview-text").inner_text() == f"Doors\nHours\n{CLOSING}"


def test_a_card_never_cuts_off_what_it_is_shown_for(open_chat: OpenChat) -> None:
    for text, is_cut in ((TEXT, False), (f"{CLOSING} {BEFORE * 2}", True)):
        chat = show(open_chat, text=text, viewport={"width": 390, "height": 844})
        card = chat.answer.locator(".source").first
        card.locator("summary").click()
        expect(card.locator("mark")).to_have_text(CLOSING)
        fits = "(mark) => mark.getBoundingClientRect().bottom <="
        fits += " mark.closest('.source-text').getBoundingClientRect().bottom"
        mark = card.locator("mark").element_handle()
        chat.page.wait_for_function(fits, arg=mark)  # how much there is is known a frame later
        expect(card.get_by_role("button", name="Show all")).to_have_count(int(is_cut))


def test_the_panel_shows_what_it_marks_with_what_stands_around_it(open_chat: OpenChat) -> None:
    around = "\n\n".join(f"Paragraph {n} of the passage." for n in range(40))
    text = f"{around}\n\n{CLOSING}\n\n{around}"
    chat = show(open_chat, Materials(text, "markdown", text), text=text)
    chat.answer.locator(".cite").first.click()
    mark = chat.page.locator("#source-panel mark")
    expect(mark).to_be_in_viewport()
    room = """(mark) => {
      const inner = mark.getBoundingClientRect();
      const outer = mark.closest('.panel-body').getBoundingClientRect();
      return Math.min(inner.top - outer.top, outer.bottom - inner.bottom);
    }"""
    assert mark.evaluate(room) > 60


def test_the_preview_follows_the_keyboard_and_closes_alone(open_chat: OpenChat) -> None:
    chat = show(open_chat, viewport={"width": 1300, "height": 800})
    preview, panel = preview_of(chat), chat.page.locator("#source-panel")
    first, second = chat.answer.locator(".cite").all()
    second.click()
    expect(panel).to_be_visible()
    chat.question.focus()
    for _ in range(40):
        chat.page.keyboard.press("Shift+Tab")
        if first.evaluate("(chip) => chip === document.activeElement"):
            break
    expect(first).to_be_focused()
    expect(preview.locator("mark")).to_have_text(CLOSING)
    described = first.get_attribute("aria-describedby")
    assert described
    assert chat.page.locator(f"#{described}").inner_text() == preview.inner_text()
    chat.page.keyboard.press("Escape")
    expect(preview).to_be_hidden()
    expect(panel).to_be_visible()
    chat.page.keyboard.press("Tab")
    expect(second).to_be_focused()
    expect(preview).to_contain_text("Material 2")
    chat.page.keyboard.press("Enter")
    expect(preview).to_be_hidden()
    expect(panel.locator(".panel-close")).to_be_focused()
    chat.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(second).to_be_focused()
    expect(preview).to_be_hidden()


def test_the_first_tap_previews_and_the_second_opens(open_chat: OpenChat) -> None:
    phone: dict[str, Any] = {
        "viewport": {"width": 390, "height": 760},
        "has_touch": True,
        "is_mobile": True,
    }
    chat = show(open_chat, **phone)
    preview, panel = preview_of(chat), chat.page.locator("#source-panel")
    first, second = chat.answer.locator(".cite").all()
    first.tap()
    expect(preview.locator("mark")).to_have_text(CLOSING)
    box = preview.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    second.tap()
    expect(preview).to_contain_text("Text of passage 2.")
    expect(panel).to_be_hidden()
    chat.page.locator("#course-title").tap()
    expect(preview).to_be_hidden()
    first.tap()
    preview.get_by_role("button", name="Read in the material").tap()
    expect(panel).to_be_visible()
    expect(preview).to_be_hidden()
    panel.get_by_role("button", name="Close the source").tap()
    expect(panel).to_be_hidden()
    first.tap()
    expect(preview).to_be_visible()
    first.tap()
    expect(panel).to_be_visible()


@pytest.mark.parametrize("width", [320, 360, 390])
@pytest.mark.parametrize("height", [560, 844])
def test_the_preview_on_a_phone_shows_the_way_on_whole(
    open_chat: OpenChat, width: int, height: int
) -> None:
    """However long the title, the place and the text are."""
    long = "A rather long sentence about doors, cards and hours. " * 12
    chat = show(
        open_chat,
        text=long + CLOSING + long,
        viewport={"width": width, "height": height},
        has_touch=True,
        is_mobile=True,
    )
    chat.answer.locator(".cite").first.tap()
    preview = preview_of(chat)
    expect(preview).to_be_visible()
    button = preview.get_by_role("button", name="Read in the material")
    # A title of two lines and a place of many headings.
    preview.evaluate(
        """(box) => {
             box.querySelector('.preview-title').textContent = 'A long title of a file '.repeat(6);
             box.querySelector('.preview-locator').textContent = 'Part › Chapter › '.repeat(9);
             dispatchEvent(new Event('scroll')); }"""
    )
    inner, outer = button.bounding_box(), preview.bounding_box()
    assert inner is not None
    assert outer is not None
    assert outer["x"] >= 0
    assert outer["x"] + outer["width"] <= width
    assert outer["y"] >= 0
    assert inner["height"] >= 40
    assert inner["y"] >= outer["y"]
    assert inner["y"] + inner["height"] <= outer["y"] + outer["height"]
    # The text gives way, and is there to be scrolled to.
    assert preview.locator(".preview-text").evaluate("(text) => text.clientHeight") > 18
    button.tap()
    expect(chat.page.locator("#source-panel")).to_be_visible()


def test_shift_escape_leads_to_the_question_at_once(open_chat: OpenChat) -> None:
    chat = show(open_chat, viewport={"width": 1300, "height": 800})
    chip, preview = chat.answer.locator(".cite").first, preview_of(chat)
    chat.question.focus()
    for _ in range(40):
        chat.page.keyboard.press("Shift+Tab")
        if chip.evaluate("(chip) => chip === document.activeElement"):
            break
    expect(preview).to_be_visible()
    chat.page.keyboard.press("Shift+Escape")
    expect(chat.question).to_be_focused()
    expect(preview).to_be_hidden()
    # Also from the panel, beside the transcript and above it.
    for width in (1300, 700):
        chat.page.set_viewport_size({"width": width, "height": 800})
        chip.click()
        expect(chat.page.locator("#source-panel .panel-close")).to_be_focused()
        chat.page.keyboard.press("Shift+Escape")
        expect(chat.page.locator("#source-panel")).to_be_hidden()
        expect(chat.question).to_be_focused()


def test_the_preview_of_a_table_shows_no_bars(open_chat: OpenChat) -> None:
    table = f"Hours:\n\n| Day | What |\n| --- | --- |\n| Monday | {CLOSING} |\n| Friday | closed |"
    chat = show(open_chat, text=table)
    chat.answer.locator(".cite").first.hover()
    preview = preview_of(chat).locator(".preview-text")
    expect(preview).to_contain_text("Monday · ")
    expect(preview).to_contain_text("Friday · closed")
    assert "|" not in preview.inner_text()
    assert "---" not in preview.inner_text()


def test_the_panel_reads_a_part_and_adds_the_others(open_chat: OpenChat) -> None:
    lines = [f"Line {n} of a very long file, 很长。" for n in range(4000)]
    materials = Materials("\n\n".join(lines), "markdown", lines[2000])
    chat = show(open_chat, materials, text=lines[2000])
    chat.answer.locator(".cite").first.click()
    panel = chat.page.locator("#source-panel")
    body = panel.locator(".panel-body")
    mark = panel.locator(".passage-mark")
    expect(mark).to_have_text(lines[2000])
    expect(mark).to_be_in_viewport()
    assert materials.asked == [{"around": "p1", "chars": "24000"}]
    assert body.locator("p").count() < 1200
    before = mark.evaluate("(mark) => mark.getBoundingClientRect().top")
    first = body.locator("p").first.inner_text()
    # Without the scrolling that a click of the test would begin with.
    for side in ("before", "that follows"):
        panel.get_by_role("button", name=f"Show the part {side}").evaluate("(it) => it.click()")
        expect(panel.get_by_role("button", name=f"Show the part {side}")).to_be_focused()
    assert body.locator("p").first.inner_text() != first
    assert abs(mark.evaluate("(mark) => mark.getBoundingClientRect().top") - before) <= 1
    for side in ("before", "that follows"):
        button = panel.get_by_role("button", name=f"Show the part {side}")
        for _ in range(5):
            if button.count() == 0:
                break
            asked = len(materials.asked)
            button.click()
            chat.page.wait_for_function(
                "(n) => performance.getEntriesByType('resource')"
                ".filter(({name}) => name.includes('/api/materials/')).length > n",
                arg=asked,
            )
            expect(panel.locator("[aria-disabled=true]")).to_have_count(0)
        expect(button).to_have_count(0)
    # Each line once, in order.
    assert body.locator("p").all_inner_texts() == lines


def test_plain_text_is_shown_as_it_is(open_chat: OpenChat) -> None:
    found = "* keep these stars *\n  # no heading"
    text = f"first_line = `1`\n\n{found}\n\n<b>&amp;</b>\n| no | table |\n| - | - |\n"
    chat = show(open_chat, Materials(text, "text", found), text=found)
    chat.answer.locator(".cite").first.click()
    body = chat.page.locator("#source-panel .panel-body")
    expect(body.locator(".passage-mark")).to_have_text(found)
    shown = body.locator("pre").all_text_contents()
    assert "".join(shown).replace("\n", "") == text.replace("\n", "")
    assert body.locator("h3, li, table, b, .code").count() == 0


def test_a_csv_is_a_table_with_its_row_marked(open_chat: OpenChat) -> None:
    text = 'part;weight\nmidterm;"20; or 25"\nfinal;"a ""big""\none"\n'
    materials = Materials(text, "csv", "midterm")
    chat = show(open_chat, materials, text="| part | weight |\n| - | - |\n| midterm | 20; or 25 |")
    chat.answer.locator(".cite").first.click()
    body = chat.page.locator("#source-panel .panel-body")
    expect(body.locator("tr.passage-mark td")).to_have_text(["midterm", "20; or 25"])
    assert body.locator("td").all_text_contents() == [
        *("part", "weight", "midterm", "20; or 25", "final", 'a "big"\none')
    ]


def test_a_material_that_has_changed_shows_what_was_read(open_chat: OpenChat) -> None:
    materials = Materials("# New\n\nAll is different now.", "markdown", None, has_original=True)
    chat = show(open_chat, materials)
    chat.answer.locator(".cite").first.click()
    panel = chat.page.locator("#source-panel")
    expect(panel.locator(".passage-mark mark")).to_have_text(CLOSING)
    expect(panel.locator(".panel-note")).to_contain_text("has changed since")
    expect(panel.locator(".panel-body")).to_contain_text("All is different now.")
    original = panel.get_by_role("link", name="Original file")
    expect(original).to_have_attribute("href", "/api/materials/m1/original")
    chat.page.get_by_role("button", name="中文").click()
    expect(panel.locator(".panel-locator")).to_have_text("第 4 页")


@pytest.mark.parametrize("body", ["", json.dumps({"title": "x"})])
def test_a_material_that_cannot_be_read_leaves_the_passage(open_chat: OpenChat, body: str) -> None:
    chat = show(open_chat, Materials("x", "markdown", None))
    chat.page.route("**/api/materials/**", lambda route: route.fulfill(body=body))
    chat.answer.locator(".source summary").first.click()
    chat.answer.locator(".source .link-button").first.click()
    panel = chat.page.locator("#source-panel")
    expect(panel.locator(".panel-note")).to_have_text("The whole material cannot be shown now.")
    expect(panel.locator(".passage-mark mark")).to_have_text(CLOSING)


def test_a_panel_that_was_closed_while_it_waited_shows_nothing(open_chat: OpenChat) -> None:
    chat = show(open_chat, Materials("x", "markdown", None))
    held: list[Route] = []
    chat.page.route("**/api/materials/**", lambda route: held.append(route))
    chat.answer.locator(".source summary").first.click()
    chat.answer.locator(".source .link-button").first.click()
    panel = chat.page.locator("#source-panel")
    expect(panel).to_be_visible()
    chat.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    # A timer that is due after the panel's own, which would report an error of the page.
    chat.page.evaluate("() => new Promise((done) => setTimeout(done, 400))")
    expect(panel).to_be_hidden()
    for route in held:
        route.fulfill(body="")


def test_the_focus_finds_a_chip_that_was_made_again(open_chat: OpenChat) -> None:
    chat = show(open_chat)
    chip = chat.answer.locator(".cite").nth(1)
    chip.focus()
    chat.page.keyboard.press("Enter")
    expect(chat.page.locator("#source-panel")).to_be_visible()
    chat.answer.locator(".prose").evaluate(
        """(prose) => { for (const chip of prose.querySelectorAll('.cite'))
             chip.replaceWith(chip.cloneNode(true)); }"""
    )
    chat.page.keyboard.press("Escape")
    expect(chip).to_be_focused()


PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}}
DESK: dict[str, Any] = {"viewport": {"width": 1300, "height": 800}}
TOP = "() => document.querySelector('#scroll').scrollTop"


def opened(chat: ChatPage) -> Locator:
    """The panel, after it was opened by a chip."""
    panel = chat.page.locator("#source-panel")
    chat.answer.locator(".cite").first.click()
    expect(panel).to_be_visible()
    return panel


COUNT_POPS = "() => { window.pops = 0; addEventListener('popstate', () => (window.pops += 1)); }"


@pytest.mark.parametrize("screen", [PHONE, DESK])
def test_back_closes_the_panel_and_nothing_else(
    open_chat: OpenChat, screen: dict[str, Any]
) -> None:
    chat = show(open_chat, **screen)
    page = chat.page
    address, top = page.url, page.evaluate(TOP)
    page.evaluate("() => document.querySelector('.answer').dataset.mine = ''")
    panel = opened(chat)
    page.go_back()
    expect(panel).to_be_hidden()
    expect(chat.answer.locator(".cite").first).to_be_focused()
    assert (page.url, page.evaluate(TOP)) == (address, top)
    # Forward leads to nothing that could be shown: what is there stays, Back leaves as ever.
    page.evaluate(COUNT_POPS)
    page.evaluate("() => history.forward()")
    # Forward, and the page's own way back.
    page.wait_for_function("() => window.pops === 2 && !history.state?.panel")
    expect(panel).to_be_hidden()
    assert page.url == address
    # It is the same transcript still, made once.
    expect(chat.page.locator(".answer[data-mine]")).to_have_count(1)
    page.go_back()
    expect(chat.answers).to_have_count(0)


@pytest.mark.parametrize("way", ["button", "Escape"])
@pytest.mark.parametrize("screen", [PHONE, DESK])
def test_a_closed_panel_leaves_no_dead_press_of_back(
    open_chat: OpenChat, screen: dict[str, Any], way: str
) -> None:
    chat = show(open_chat, **screen)
    for _ in range(3):
        panel = opened(chat)
        if way == "Escape":
            chat.page.keyboard.press("Escape")
        else:
            panel.get_by_role("button", name="Close the source").click()
        expect(panel).to_be_hidden()
        expect(chat.answer.locator(".cite").first).to_be_focused()
    chat.page.wait_for_function("() => !history.state?.panel")
    chat.page.go_back()
    expect(chat.answers).to_have_count(0)


def test_another_conversation_closes_the_panel_and_takes_its_entry(open_chat: OpenChat) -> None:
    chat = show(open_chat, **DESK)
    page = chat.page
    address, panel = page.url, opened(chat)
    num_entries = page.evaluate("() => history.length")
    page.locator("a.new-conversation").click()
    expect(panel).to_be_hidden()
    expect(chat.answers).to_have_count(0)
    assert page.url != address
    assert page.evaluate("() => [history.length, history.state.panel ?? null]") == [
        num_entries,
        None,
    ]


def test_a_reload_with_the_panel_open_is_as_if_it_were_closed(open_chat: OpenChat) -> None:
    chat = open_chat(**DESK)
    chat.ask()
    chat.wait_end()
    page, address = chat.page, chat.page.url
    panel = page.locator("#source-panel")

    def read() -> None:
        chat.answer.locator(".source summary").first.click()
        chat.answer.get_by_role("button", name="Read in the material").first.click()
        expect(panel).to_be_visible()

    read()
    page.reload()
    page.wait_for_selector("html.is-ready")
    page.wait_for_function("() => !history.state?.panel")
    expect(panel).to_be_hidden()
    expect(chat.answers).to_have_count(1)
    assert page.url == address
    read()
    page.go_back()
    expect(panel).to_be_hidden()
    assert page.url == address
    page.go_back()
    expect(chat.answers).to_have_count(0)
