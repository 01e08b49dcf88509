"""Where the mark of a continuation stands: at the very character, in code too, and nothing of the
Markdown around it changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import ScriptedPeer, deltas, finish, opening
from tests.e2e.browser.test_rendering import PRELUDE
from tests.support.server_process import ServerProcess

CODE = "def f(block):\n    for i in block:\n\n        prefix.append(block[i])\n    return prefix\n"
SAMPLES = {
    "language": f"Before it.\n\n```python\n{CODE}```\n\nAfter it.",
    "no language": f"Before it.\n\n```\n{CODE}```\n\nAfter it.",
    "list": "1. Do:\n\n   ```python\n   " + CODE.replace("\n", "\n   ") + "```\n2. Then rest.",
    "quote": "> ~~~js\n> " + CODE.replace("\n", "\n> ") + "~~~\n\nAfter it.",
    "indented": "Before it.\n\n    " + CODE.rstrip().replace("\n", "\n    ") + "\n\nAfter it.",
    "inline": "Call `prefix.append(block[i])`, ``a ` b``: *so* it **is**, see [1], a[1].\nNext.",
    "table": "| a | b |\n| :-- | --: |\n| `x(1)` | **w**, v |\n| $z^2$ | 40% |\n\nafter",
    "math": "So $x^2 + y$ and\n\n$$\n\\frac{a}{b} + c\n$$\n\nthen \\(q\\). Costs $5.",
    "cjk": "**注意**，见`代码(甲)`。\n\n```c\nint 甲 = 1; // 注释：😀好\n```\n\n- 😀一，𝒳二。",
    "links": "See [the plan](https://example.org/a_b), https://example.org/c?d=1 &amp; \\* it.",
}
IN_CODE = ("language", "no language", "list", "quote", "indented")
WORDS = {
    "inline": "append block[i] so is see Next",
    "table": "w v after",
    "math": "then Costs",
    "cjk": "注意 代码(甲) 注释：😀好 一，𝒳二",
    "links": "See plan it",
}
# For each cut of a text: what is seen of it, and how much of it before the seam.
CUT = f"""async (text) => {{ {PRELUDE}
  const seen = async (seams) => {{
    const root = place();
    const answer = new AnswerText(root, '');
    await answer.settle(text, seams, passages, []);
    await still(root);
    const before = [];
    for (const seam of root.querySelectorAll('.seam')) {{
      const range = document.createRange();
      range.setStart(root, 0);
      range.setEndBefore(seam);
      before.push([range.toString(), seam.matches('.seam-line')]);
    }}
    for (const node of root.querySelectorAll('.seam')) node.remove();
    for (const node of root.querySelectorAll('.code span[class^=hljs]'))
      node.replaceWith(...node.childNodes);
    root.normalize();
    const {{ innerHTML, textContent }} = root;
    root.remove();
    return {{ before, innerHTML, textContent }};
  }};
  const plain = await seen([]);
  const cuts = [];
  let at = 0;
  for (const character of text) {{
    if (at > 0) {{
      const cut = await seen([at]);
      cuts.push({{ at, before: cut.before, isSame: cut.innerHTML === plain.innerHTML }});
    }}
    at += character.length;
  }}
  return {{ cuts, shown: plain.textContent }};
}}"""


@pytest.fixture(scope="module")
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    context = browser.new_context(base_url=server.address)
    page = context.new_page()
    page.goto("/")
    page.wait_for_selector("html.is-ready")
    yield page
    context.close()


def dense(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_seam_breaks_nothing_and_is_exact_in_words_and_code(page: Page, name: str) -> None:
    text = SAMPLES[name]
    found: dict[str, Any] = page.evaluate(CUT, text)
    cuts = {cut["at"]: cut for cut in found["cuts"]}
    assert [at for at, cut in cuts.items() if not cut["isSame"]] == []
    assert [at for at, cut in cuts.items() if len(cut["before"]) != 1] == []
    assert not any(is_line for cut in cuts.values() for _, is_line in cut["before"])
    for word in WORDS.get(name, "").split():
        begin = len(text[: text.index(word)].encode("utf-16-le")) // 2
        for length in range(1, len(word)):
            at = begin + len(word[:length].encode("utf-16-le")) // 2
            before = cuts[at]["before"][0][0]
            assert before.endswith(word[:length]), (word, length, before)
    if name in IN_CODE:
        head = found["shown"].index("def f(")
        begin, end = text.index("def f("), text.index("prefix\n") + len("prefix")
        for at in range(begin, end + 1):
            written = re.sub("(?m)^> ?", "", text[begin:at]) if name == "quote" else text[begin:at]
            assert dense(cuts[at]["before"][0][0][head:]) == dense(written), at


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_seam_of_cut_code_is_seen_where_it_was_cut(
    open_chat: OpenChat, peer: ScriptedPeer, theme: str
) -> None:
    first, rest = CODE[: CODE.index("])")], CODE[CODE.index("])") :]
    chat = open_chat(before=peer.attach_to, color_scheme=theme)
    begun = f"So:\n\n```python\n{first}"
    end = finish("max_tokens", can_continue=True)
    peer.answer([*opening(), *deltas(begun, 7), end])
    chat.ask("How?")
    chat.wait_end()
    start = {**opening()[2], "continued": True}
    peer.answer([start, *deltas(rest)])
    chat.answer.get_by_role("button", name="Continue", exact=True).click()
    code = chat.answer.locator(".code code")
    expect(code).to_have_text(CODE)
    before = """(code) => { const range = document.createRange();
      range.setStart(code, 0);
      range.setEndBefore(code.querySelector('.seam'));
      return range.toString(); }"""
    # While it is written, and when it has its colours.
    assert code.evaluate(before) == first
    peer.send(*deltas("```\n\nDone."), finish())
    chat.wait_end()
    expect(code.locator(".hljs-keyword").last).to_have_text("return")
    assert code.evaluate(before) == first
    # Seen: its line has a colour apart from the ground's.
    line, ground = code.locator(".seam").evaluate(
        """(seam) => { const shade = (color) => {
             const canvas = new OffscreenCanvas(1, 1).getContext('2d');
             canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
             const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
             const part = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
             return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
             return [shade(getComputedStyle(seam).borderLeftColor),
                     shade(getComputedStyle(seam.closest('.code')).backgroundColor)]; }"""
    )
    contrast = (max(line, ground) + 0.05) / (min(line, ground) + 0.05)
    assert contrast >= 3
    assert code.locator(".seam").evaluate("(s) => getComputedStyle(s).borderLeftStyle") == "solid"
