"""Hostile text is harmless, in answers (streamed in pieces of three characters), in questions, in
the history, and wherever a teacher meets what others have written: names of files and people,
titles, previews, passages, the log, the printed record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.school import School, Visit, ask, join, make_course, upload
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, passage
from tests.support.server_process import ServerProcess

HOSTILE = [
    '<img src=x onerror="window.__pwn=1">',
    "<script>window.__pwn=1</script>",
    "<svg/onload=window.__pwn=1>",
    "**bold** <b onmouseover=window.__pwn=1>x</b>",
]
TRICKS = r"""[a](javascript:window.__pwn=1) [b](data:text/html,<script>window.__pwn=1</script>)
![seen](https://tracker.example/pixel.png) ![c](data:image/png;base64,iVBORw0KGgo=)
<a href="javascript:window.__pwn=1">d</a> [e](vbscript:x) [f](//tracker.example/x)

$\href{javascript:window.__pwn=1}{g}$ $\htmlData{x=y}{h}$ $\url{javascript:1}$

````html
```
<script>window.__pwn=1</script>
```
````

| <img src=x onerror=window.__pwn=1> | [i](jAvAsCrIpT:window.__pwn=1) |
| - | - |
| 1 | 2 |

Reversed ‮text‬ and the end.
"""
CONTENT = ".messages .prose, .messages .question-text"
SCAN = """(selector) => {
  const found = [];
  for (const root of document.querySelectorAll(selector)) {
    for (const node of root.querySelectorAll('*')) {
      if (/^(script|img|iframe|object|embed|form|input|style|link|base)$/i.test(node.tagName)
          || (/^svg$/i.test(node.tagName) && !node.matches('.icon') && !node.closest('.katex')))
        found.push(node.tagName);
      for (const {name, value} of node.attributes) {
        if (/^on/i.test(name)) found.push(name);
        if (/^(href|src)$/i.test(name) && !/^(https?|mailto):/i.test(value)) found.push(value);
      }
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def storm_page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    """One page for all storms; it may report no error."""
    context = browser.new_context(base_url=server.address)
    page = context.new_page()
    page.set_default_timeout(20_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: errors.append(message.text) if message.type == "error" else None,
    )
    page.goto("/")
    page.wait_for_selector("html.is-ready")
    yield page
    context.close()
    assert errors == []


def assert_harmless(chat: ChatPage) -> None:
    assert chat.page.evaluate("() => window.__pwn") is None
    assert chat.page.evaluate(SCAN, CONTENT) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_markup_in_question_answer_and_history_is_text(open_chat: OpenChat, text: str) -> None:
    chat = open_chat()
    chat.ask(f"{QUESTION} {text}")
    shown = chat.wait_end()
    visible = text.replace("**", "")
    assert visible in shown
    expect(chat.questions).to_have_text([f"{QUESTION} {text}"])
    assert_harmless(chat)
    chat.page.reload()
    assert visible in chat.wait_end()
    expect(chat.questions).to_have_text([f"{QUESTION} {text}"])
    assert_harmless(chat)


@pytest.mark.parametrize("num_chars", [1, 3, 10_000])
def test_tricks_of_markdown_and_latex_do_nothing(open_chat: OpenChat, num_chars: int) -> None:
    peer = ScriptedPeer()
    requests: list[str] = []
    chat = open_chat(before=peer.attach_to)
    chat.page.on("request", lambda request: requests.append(request.url))
    text = "\n\n".join([*HOSTILE, TRICKS])
    hostile_passage = {**passage(1), "title": HOSTILE[0], "text": text, "locator": HOSTILE[1]}
    peer.answer([*opening(hostile_passage), *deltas(text, num_chars), finish()])
    chat.ask(text)
    chat.wait_end()
    assert_harmless(chat)
    chat.answer.locator(".source summary").click()
    chat.answer.locator(".source .link-button").click()
    expect(chat.page.locator(".panel-body")).to_contain_text("the end.")
    assert chat.page.evaluate(SCAN, ".source, #source-panel .panel-body") == []
    assert not [url for url in requests if "tracker" in url or url.startswith("data:")]
    assert "\u202e" not in chat.text


STORMS = {
    "raw HTML": "".join(f'<div onclick="window.__pwn=1"><img src=x{n}>' for n in range(300)),
    "nested fences": "\n".join(
        "`" * n + "html\n<script>window.__pwn=1</script>" for n in range(60, 2, -1)
    ),
    "fences in lists": "\n".join(f"{' ' * n}- ```\n{' ' * n}  <b>x</b>" for n in range(60)),
    "dollars": "$" * 10_000,
    "dollars apart": "$a " * 5000,
    "formulas": " ".join(f"$x_{{{n}}}$" for n in range(300)),
    "broken formulas": " ".join(f"$\\frac{{{n}$ \\(\\left( {n}\\) \\[\\x{n}" for n in range(300)),
    "deep formula": "$" + "{" * 900 + "x" + "}" * 900 + "$",
    "long formula": "$" + "x^{2}+" * 300 + "x$",
    "macros": r"$\def\a{\b\b\b\b}\def\b{\c\c\c\c}\def\c{\d\d\d\d}\def\d{xxxx}\a\a\a\a$",
    "display signs": "$$ x\n" * 1000,
    "opening signs": "\\(" * 5000 + "\n\n" + "\\[" * 5000,
    "brackets": "[" * 10_000,
    "brackets and ends": "[" * 5000 + "]" * 5000,
    "links": "[a](" * 3000,
    "javascript links": "[x](javascript:window.__pwn=1) " * 500,
    "images": "![x](data:image/png;base64,iVBORw0KGgo=) ![y](https://tracker.example/y.png) " * 300,
    "stars": "*a **b " * 3000,
    "underscores": "_a" * 5000,
    "backticks": "".join("`" * n + "x" for n in range(1, 140)),
    "quotes": ">" * 10_000 + " x\n\nend",
    "deep quotes": "\n".join("> " * n + "x" for n in range(1, 120)),
    "deep list": "\n".join("  " * n + "- x" for n in range(150)),
    "wide table": f"|{'a|' * 500}\n|{'-|' * 500}\n" + f"|{'$x$|' * 500}\n" * 3,
    "long table": "| a | b |\n| - | - |\n" + "| [1] | **x** |\n" * 700,
    "definitions": "\n".join(f"[r{n}]: https://example.org/{n}" for n in range(2000)) + "\n\n[r1]",
    "entities": "&lt;script&gt;&#x202e;" * 1000,
    "citations": "A sentence [1]. " * 500,
    "bidi": "\u202e\u2066\u061c\u200f x " * 1000 + "\n\n```\n\u202ea\u2069\n```",
    "zero width": "a\u200b\u200d\u2060\ufeff" * 2500,
    "combining": "".join("e" + "\u0301" * 40 for _ in range(300)),
    "one word": "字" * 10_000 + "\n\n" + "w" * 10_000,
    "lines": "x\u2028\u2029\u0085\n" * 2000,
    "headings": "# x\n" * 1500,
    "private characters": "\ue0f0\ue200\ue2ff\uf8ff" * 2000,
    "surrogates": "\U0001d4b3" * 5000,
}
STREAM = """async ({text, size}) => {
  const base = document.querySelector('script[type=module]').src.replace(/main\\.js$/, '');
  const {AnswerText} = await import(base + 'answer/answer-text.js');
  const {slices} = await import(base + 'answer/slices.js');
  const article = document.createElement('article');
  const root = document.createElement('div');
  article.className = 'answer';
  root.className = 'prose';
  article.append(root);
  document.querySelector('#messages').replaceChildren(article);
  document.body.classList.remove('is-empty');
  const answer = new AnswerText(root, '');
  const passages = new Map([[1, {title: 'One', locator: '', text: 'x'}]]);
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  let worst = 0;
  for (let at = size; at < text.length; at += size) {
    await frame();
    const begin = performance.now();
    answer.grow(text.slice(0, at), [], passages);
    worst = Math.max(worst, performance.now() - begin);
  }
  await answer.settle(text, [], passages, []);
  await slices.whenIdle();
  const width = document.documentElement.scrollWidth - innerWidth;
  const area = document.querySelector('#scroll');
  return {worst, width: Math.max(width, area.scrollWidth - area.clientWidth),
          text: root.textContent.length};
}"""


@pytest.mark.parametrize("name", STORMS)
def test_a_storm_of_signs_neither_stops_the_page_nor_breaks_out(
    storm_page: Page, name: str
) -> None:
    text = STORMS[name]
    asked: list[str] = []
    storm_page.on("request", lambda request: asked.append(request.url))
    found = storm_page.evaluate(STREAM, {"text": text, "size": max(1, len(text) // 12)})
    assert found["text"] > 0
    assert found["width"] <= 0, "the page can be scrolled sideways"
    # One step at a time; the limit is for a machine with busy neighbours.
    assert found["worst"] < 1000
    assert storm_page.evaluate("() => window.__pwn") is None
    assert storm_page.evaluate(SCAN, "#messages .prose") == []
    assert not [url for url in asked if "tracker" in url or url.startswith("data:")]


ELEMENTS = """() => {
  const made = [...document.querySelectorAll('main *, dialog *, body > :not(script)')];
  return made.filter((node) => node.matches('script, img, iframe, object, embed, b, [onload], '
      + '[onerror], [onmouseover], [href^="javascript:"], svg:not(.icon, .brand-mark)'))
    .map((node) => node.outerHTML);
}"""
NAME = '<img src=x onerror="window.__pwn=1">'
LINE = "The deadline of lab nine is on Friday."


def assert_shown_as_text(page: Page, *texts: str) -> None:
    for text in texts:
        expect(page.locator("body")).to_contain_text(text)
    assert page.evaluate("() => window.__pwn") is None
    assert page.evaluate(ELEMENTS) == []


def test_what_others_write_is_text_on_the_teachers_pages(visit: Visit, school: School) -> None:
    teacher = visit("/teach", storage_state=school.teacher)
    course = make_course(teacher, f"Course {NAME}")
    hostile = "\n\n".join([f"# Lab nine {HOSTILE[1]}", f"{LINE} {HOSTILE[0]}", *HOSTILE[2:]])
    file_name = "<svg onload=window.__pwn=1>.md"
    material = upload(teacher, course, file_name, hostile.encode())
    student = visit("/login")
    join(student, course, f"Eve {NAME}", "eve-the-tester")
    question = f"When is the deadline of lab nine? {HOSTILE[1]}"
    ask(student, question)
    answer = student.locator(".answer").last
    answer.get_by_role("button", name="This answer did not help").click()
    answer.get_by_label("What is wrong with it?").fill(f"Note {NAME}")
    answer.get_by_role("button", name="Send").click()
    expect(answer.locator(".feedback-note")).to_contain_text("Thank you")
    answer.locator(".cite").first.click()
    expect(student.locator(".panel-body")).to_contain_text(LINE)
    assert_shown_as_text(student, NAME)

    teacher.reload()
    assert_shown_as_text(teacher, f"Course {NAME}")
    teacher.goto(f"/teach/{course['slug']}")
    expect(teacher.get_by_label("Title")).to_have_value(f"Lab nine {HOSTILE[1]}")
    assert_shown_as_text(teacher, file_name, f"Course {NAME}")
    teacher.get_by_role("button", name="Preview").click()
    teacher.get_by_text("Passages that can be found").click()
    expect(teacher.locator(".passage-list")).to_contain_text(LINE)
    assert_shown_as_text(teacher, *HOSTILE[2:])
    teacher.keyboard.press("Escape")
    teacher.get_by_role("button", name="Delete").click()
    assert_shown_as_text(teacher, f"Lab nine {HOSTILE[1]}")
    teacher.keyboard.press("Escape")

    teacher.get_by_role("link", name="People").click()
    assert_shown_as_text(teacher, f"Eve {NAME}")
    teacher.get_by_role("link", name="Try a question").click()
    teacher.get_by_label("Question", exact=True).fill("lab nine deadline")
    teacher.keyboard.press("Enter")
    expect(teacher.locator(".hit")).to_contain_text(LINE)
    assert_shown_as_text(teacher, HOSTILE[0])
    teacher.get_by_role("link", name="Log", exact=True).click()
    teacher.locator(".record").get_by_text("1 source").click()
    assert_shown_as_text(teacher, question, f"Note {NAME}", HOSTILE[0])
    with teacher.expect_popup() as popup:
        teacher.locator(".record").get_by_role("link", name="Print view").click()
    expect(popup.value.locator("body")).to_contain_text(LINE)
    assert_shown_as_text(popup.value, question, f"Note {NAME}")
    assert material["name"] == file_name
