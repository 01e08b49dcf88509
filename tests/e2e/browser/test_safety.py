"""Hostile text is harmless, in answers (streamed in pieces of three characters), in questions, in
the history, and wherever a teacher meets what others have written: names of files and people,
titles, previews, passages, the log, the printed record."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.chat_page import QUESTION, ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.school import School, Visit, ask, join, make_course, upload
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening, passage

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
