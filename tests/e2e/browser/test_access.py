"""The page for everyone: WCAG 2.2 AA by axe-core in both themes, and what no rule of axe sees."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from server.app.pages import TABS
from tests.e2e.browser.axe import announced, listen, violations
from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.school import School, Visit, ask, join, make_course, upload, visits
from tests.e2e.browser.screens import STATES
from tests.e2e.browser.scripted_peer import ScriptedPeer

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "reduced_motion": "reduce"}


def lead(open_chat: OpenChat, state: str, **options: Any) -> ChatPage:
    """A page in a state."""
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to, **options)
    STATES[state](chat, peer)
    return chat


def in_both_themes(page: Page) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for theme in THEMES:
        page.evaluate("(theme) => { document.documentElement.dataset.theme = theme; }", theme)
        if breaches := violations(page):
            found[theme] = breaches
    return found


@pytest.mark.parametrize("state", STATES)
def test_a_state_of_the_chat_breaches_no_rule(open_chat: OpenChat, state: str) -> None:
    assert in_both_themes(lead(open_chat, state, **DESKTOP).page) == {}


@pytest.mark.parametrize("state", ["empty", "sources", "cut", "panel", "help_word", "versions"])
def test_a_phone_in_chinese_breaches_no_rule(open_chat: OpenChat, state: str) -> None:
    chat = lead(open_chat, state, **PHONE, locale="zh-CN")
    assert in_both_themes(chat.page) == {}
    assert not chat.is_wider_than_screen()


def test_a_breach_would_be_found(open_chat: OpenChat) -> None:
    page = open_chat(**DESKTOP).page
    page.evaluate("() => document.querySelector('#menu').removeAttribute('aria-label')")
    page.evaluate("() => { document.querySelector('.welcome-title').style.color = '#ccc'; }")
    page.set_viewport_size({"width": 600, "height": 800})
    found = violations(page)
    assert {breach.split(":")[0] for breach in found} == {"button-name", "color-contrast"}
    page.evaluate(
        """() => { const small = new CSSStyleSheet();
          small.replaceSync('.sidebar-foot button { width: 9px !important; '
            + 'min-width: 0 !important; height: 9px !important; min-height: 0 !important; '
            + 'padding: 0 !important; margin: 0 !important; } .sidebar-foot { gap: 0 !important; '
            + 'justify-content: flex-start !important; }');
          document.adoptedStyleSheets = [small]; }"""
    )
    page.set_viewport_size({"width": 1280, "height": 800})
    assert "target-size" in {breach.split(":")[0] for breach in violations(page)}


@pytest.fixture(scope="module")
def taught(browser: Browser, school: School) -> dict[str, Any]:
    """A course with all that a teacher's pages can show: files, one of them broken, and a question
    that was asked and judged. With it, a student."""
    with visits(browser, school.address) as visit:
        teacher = visit("/teach", storage_state=school.teacher)
        course = make_course(teacher, "Access", title_zh="无障碍")
        upload(teacher, course, "rooms.md", b"# Rooms\n\nThe reading room opens at eight.\n")
        bad: FilePayload = {
            "name": "broken.pdf",
            "mimeType": "application/pdf",
            "buffer": b"no PDF",
        }
        teacher.request.post(f"/api/courses/{course['id']}/materials", multipart={"file": bad})
        student = visit("/login")
        join(student, course, "Mia", "mia-access")
        ask(student, "When does the reading room open?")
        answer = student.locator(".answer").last
        answer.get_by_role("button", name="This answer did not help").click()
        message = answer.get_attribute("data-message")
        return {**course, "student": student.context.storage_state(), "message": message}


@pytest.mark.parametrize("tab", TABS)
def test_a_teachers_tab_breaches_no_rule(
    visit: Visit, school: School, taught: dict[str, Any], tab: str
) -> None:
    page = visit(f"/teach/{taught['slug']}/{tab}", storage_state=school.teacher, **DESKTOP)
    if tab == "materials":
        expect(page.locator(".material")).to_have_count(2)
    if tab == "try":
        page.get_by_label("Question", exact=True).fill("When does the reading room open?")
        page.keyboard.press("Enter")
        expect(page.locator(".hit").first).to_be_visible()
    if tab == "log":
        page.locator(".record summary").first.click()
    assert in_both_themes(page) == {}
    page.set_viewport_size({"width": 320, "height": 640})
    assert violations(page) == []
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 320


def test_the_teachers_dialogs_breach_no_rule(
    visit: Visit, school: School, taught: dict[str, Any]
) -> None:
    page = visit(f"/teach/{taught['slug']}", storage_state=school.teacher, **DESKTOP)
    row = page.locator(".material").filter(has_text="rooms.md")
    row.get_by_role("button", name="Preview").click()
    expect(page.locator("dialog .preview-text")).to_contain_text("reading room")
    assert in_both_themes(page) == {}
    page.keyboard.press("Escape")
    row.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert in_both_themes(page) == {}


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize(
    "path", ["/login", "/join", "/join/{join_code}", "/start/used", "/account", "/teach"]
)
def test_a_door_breaches_no_rule(
    visit: Visit, school: School, taught: dict[str, Any], path: str, locale: str
) -> None:
    state = {"/account": taught["student"], "/teach": school.teacher}.get(path)
    options = {} if state is None else {"storage_state": state}
    page = visit(path.format(**taught), locale=locale, **DESKTOP, **options)
    expect(page.get_by_role("heading").first).to_be_visible()
    assert in_both_themes(page) == {}
    page.set_viewport_size({"width": 320, "height": 640})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_record_needs_no_script_and_breaches_no_rule(
    browser: Browser, school: School, taught: dict[str, Any], locale: str
) -> None:
    """As the asker may open it; with JavaScript off all of it is there."""
    path = f"/records/{taught['message']}"
    off = browser.new_context(
        base_url=school.address, storage_state=taught["student"], java_script_enabled=False,
        locale=locale,
    )  # fmt: skip
    page = off.new_page()
    reply = page.goto(path)
    assert reply is not None
    assert reply.ok
    expect(page.locator("body")).to_contain_text("When does the reading room open?")
    expect(page.locator(".answer")).to_contain_text("The reading room opens at eight.")
    expect(page.locator("mark").first).to_have_text("The reading room opens at eight.")
    assert page.locator("script").count() == 0
    off.close()
    # The check itself is a script, and the page's policy lets none in.
    on = browser.new_context(
        base_url=school.address, storage_state=taught["student"], bypass_csp=True, **DESKTOP
    )
    page = on.new_page()
    page.goto(path)
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        assert violations(page) == []
    page.set_viewport_size({"width": 320, "height": 640})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 320
    on.close()


FOCUSED = """() => {
  const node = document.activeElement;
  if (node === document.body) return null;
  const {left, top, width, height} = node.getBoundingClientRect();
  const isShown = [[0.5, 0.5], [0.1, 0.2], [0.9, 0.2], [0.1, 0.8], [0.9, 0.8]].some(([x, y]) => {
    const hit = document.elementFromPoint(left + width * x, top + height * y);
    return hit !== null && (node.contains(hit) || hit.contains(node) && hit !== document.body
      || (hit.closest('label')?.contains(node) ?? false));
  });
  const follows = Node.DOCUMENT_POSITION_FOLLOWING;
  const order = !window.__before
    || Boolean(window.__before.compareDocumentPosition(node) & follows);
  window.__before = node;
  const framed = [node, node.closest('form')].filter(Boolean).map((one) => getComputedStyle(one))
    .some(({outlineStyle, boxShadow}) => outlineStyle !== 'none' || boxShadow !== 'none');
  return {name: `${node.tagName}.${node.className}`, order, framed,
    isInView: top < innerHeight && top + height > 0
      && left >= -1 && left + width <= innerWidth + 1,
    isHidden: !isShown};
}"""


def walk(page: Page, most: int = 90) -> list[dict[str, Any]]:
    """Each stop of the Tab key from the top of the page to its end."""
    page.evaluate("() => { window.__before = null; }")
    page.locator(".skip").focus()
    stops: list[dict[str, Any]] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop is None:
            break
        stops.append(stop)
    return stops


@pytest.mark.parametrize(
    ("width", "height"), [(1280, 800), (640, 360), (320, 256)], ids=["whole", "double", "fourfold"]
)
def test_the_focus_goes_in_reading_order_and_is_never_hidden(
    open_chat: OpenChat, width: int, height: int
) -> None:
    """Also where a window of 1280 by 720 (1024) is magnified to 200 (400) per cent."""
    size = {"width": width, "height": height}
    chat = lead(open_chat, "sources", viewport=size, reduced_motion="reduce")
    stops = walk(chat.page)
    assert len(stops) > 12
    assert [stop["name"] for stop in stops if not stop["order"]] == []
    assert [stop["name"] for stop in stops if not stop["framed"]] == []
    assert [stop["name"] for stop in stops if not stop["isInView"]] == []
    assert [stop["name"] for stop in stops if stop["isHidden"]] == []
    assert not chat.is_wider_than_screen()
    # There is room to write and to read what was written.
    chat.question.fill("One line\n" * 20)
    box, area = chat.question.bounding_box(), chat.page.locator("#scroll").bounding_box()
    assert box is not None
    assert area is not None
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= height
    assert area["height"] >= height * 0.35


def test_twice_the_size_of_text_loses_nothing(open_chat: OpenChat) -> None:
    for size in (DESKTOP, PHONE):
        chat = lead(open_chat, "cut", **size)
        chat.page.evaluate("() => { document.documentElement.style.fontSize = '200%'; }")
        assert not chat.is_wider_than_screen()
        assert clipped(chat.page) == []
        expect(chat.question).to_be_in_viewport(ratio=0.9)


CLIPPED = """() => [...document.querySelectorAll('body *')].filter((node) => {
  const {overflowX, overflowY, textOverflow, clipPath} = getComputedStyle(node);
  // What is there for the ear alone is clipped on purpose.
  if (!node.checkVisibility({visibilityProperty: true}) || clipPath !== 'none') return false;
  // What ends in dots is whole elsewhere: a card when it is opened, a title as its tooltip.
  if (textOverflow === 'ellipsis' || node.matches('textarea, select, input')) return false;
  const hides = (value) => value === 'hidden' || value === 'clip';
  return (hides(overflowX) && node.scrollWidth > node.clientWidth + 2)
    || (hides(overflowY) && node.scrollHeight > node.clientHeight + 2);
}).map((node) => `${node.tagName}.${node.className}`)"""
SPACED = """() => { const spaced = new CSSStyleSheet();
  spaced.replaceSync(`* { line-height: 1.5 !important; letter-spacing: 0.12em !important;
    word-spacing: 0.16em !important; } p { margin-bottom: 2em !important; }`);
  document.adoptedStyleSheets = [spaced]; }"""


def clipped(page: Page) -> list[str]:
    """Elements whose content is cut off."""
    found: list[str] = page.evaluate(CLIPPED)
    return found


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_wider_text_spacing_loses_nothing(open_chat: OpenChat, locale: str) -> None:
    chat = lead(open_chat, "details", **PHONE, locale=locale)
    chat.page.evaluate(SPACED)
    assert clipped(chat.page) == []
    assert not chat.is_wider_than_screen()
    expect(chat.question).to_be_in_viewport(ratio=0.9)


def test_forced_colours_keep_what_colour_alone_would_say(open_chat: OpenChat) -> None:
    chat = lead(open_chat, "panel", **DESKTOP, forced_colors="active")
    unseen = """(selectors) => selectors.filter((selector) => {
      const node = document.querySelector(selector);
      if (node === null) return true;
      const style = getComputedStyle(node);
      const lines = ['borderTopStyle', 'borderInlineStartStyle', 'outlineStyle'];
      return lines.every((line) => style[line] === 'none') && style.textDecorationLine === 'none'
        && style.forcedColorAdjust !== 'none' && style.boxShadow === 'none';
    })"""
    shown = ["#source-panel .passage-mark", ".cite", ".source", ".composer"]
    assert chat.page.evaluate(unseen, shown) == []
    ground = "(selector) => getComputedStyle(document.querySelector(selector)).backgroundColor"
    assert chat.page.evaluate(ground, "#source-panel mark") != chat.page.evaluate(ground, "body")
    chat.page.keyboard.press("Escape")
    chat.answer.locator(".details-toggle").click()
    assert chat.page.evaluate(unseen, [".meter-bar > *"]) == []


@pytest.mark.parametrize("state", ["queued", "writing", "panel"])
def test_nothing_moves_where_motion_is_not_wanted(open_chat: OpenChat, state: str) -> None:
    chat = lead(open_chat, state, **DESKTOP)
    running = (
        "() => document.getAnimations().filter(({playState}) => playState === 'running').length"
    )
    chat.page.wait_for_function(f"() => ({running})() === 0")


def test_each_phase_is_said_once_and_no_text_of_the_answer(open_chat: OpenChat) -> None:
    chat = open_chat(before=listen, **DESKTOP)
    question = "When are office hours? " + " ".join(f"word{n}" for n in range(20))
    chat.ask(question)
    chat.wait_end()
    expect(chat.status).to_have_text("Complete")
    said = announced(chat.page)
    assert said[-1] == "Complete"
    assert len(said) == len(set(said)) <= 5
    assert not [text for text in said if "word" in text]


def test_a_button_that_goes_leaves_the_focus_where_it_was(open_chat: OpenChat) -> None:
    chat = open_chat(**DESKTOP)
    chat.ask("When are office hours? " + " ".join(f"part{n}" for n in range(60)))
    chat.wait_end()
    button = chat.answer.get_by_role("button", name="Continue").first
    button.focus()
    chat.page.keyboard.press("Enter")
    expect(chat.answer).to_have_attribute("data-state", "running")
    inside = "() => document.activeElement.closest('.answer, .dock') !== null"
    chat.page.wait_for_function(inside)
    chat.wait_end()
    chat.page.wait_for_function(inside)
