"""What becomes of a text: the same however it was cut while it grew, with as few new nodes as can
be, and the last form of an ended answer without building it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser.chat_page import ChatPage
from tests.e2e.browser.conftest import OpenChat
from tests.e2e.browser.scripted_peer import Event, ScriptedPeer, deltas, finish, opening, passage
from tests.support.server_process import ServerProcess

INLINE = [
    "Plain text.\nA second line, and a hard  \nbreak \\\nhere.",
    "**bold** *em* ~~gone~~ `a|b` ***both***, **bold $x^2$ in it** and `` a ` b ``.",
    "Unfinished **bold and `code",
    "snake_case_name and 2*3*4 and a * b * c.",
    "[link](https://example.org/a_(b)) <https://example.org/x> https://example.org/bare.",
    "![picture](https://example.org/x.png) and ![none](data:image/png;base64,xx)",
    "&amp; &lt;b&gt; &copy; &#35; <b>raw</b> <!-- comment -->",
    "Escapes: \\* \\_ \\` \\[ \\$ \\\\ and 100\\%.",
    "Money: $5 and $10, then $x$ and $y_1$, and $ a $.",
    "\\(a + b\\) then \\[c\\] and \\(unfinished",
    "Broken $\\frac{1$ and $\\undefined{x}$ and \\(\\left(\\).",
    "中文，**粗体**、`代码`。公式$E=mc^2$在句中。【1】然后【2，7】。",
    "😀 emoji 👩‍👩‍👧 and 𝒳, é vs é, a\u200bb, a\u00a0b.",
    "A source [1], two [1, 2], none [9]. Not a[1], not [0, 1], [1](https://example.org).",
    "[1] first and [2]\n[1]\nlast [1]",
    "Line one [1][2] and [1] [2], `[1]`.",
]
BLOCKS = [
    "# One\n\n## Two\n\nSetext\n===\n\nAnother\n---\n\ntext\n\n***\n\nend",
    "Paragraph\n\n\n\nParagraph after blanks\n",
    "> quote\n> more\n\n> > nested\n> back\nlazy\n\nafter",
    "> - list in a quote\n>   ```py\n>   x = 1\n>   ```\n> end",
    "    indented code\n    more\n\n    after a blank\n\ntext",
    "```python\ndef f(x):\n    return x\n```",
    "```\nno language\n\n  blank above\n```\ntext directly after",
    "```js\nnever closed\nlet x = 1;",
    "````md\n```\ninner\n```\n````",
    "~~~~text\n```\n~~~\n~~~~\n\nafter",
    "```python title=x\nprint('</code><b>')\n```\n\n```mermaid\ngraph TD; A-->B;\n```",
    "- one\n- two\n  - deep\n    - deeper\n- three",
    "- one\n\n- two\n\n- three",
    "1. one\n2. two\n\n3. three is loose\n4. four",
    "7. seven\n8. eight\n   continued\nlazy",
    "1. one\n\n2. two",
    "1. one\n2",
    "- [ ] open\n- [x] done",
    "* a\n\n  paragraph in it\n\n  ```sh\n  ls -l\n  ```\n\n* b",
    "1. Do:\n   ```python\n   a = 1\n   ```\n2. Then:\n\n   $$\n   x = 1\n   $$\n\n3. End",
    "- a\n\n\n- b\n\ntext\n\n- c",
    "- item\n\n      indented code\n\n- next",
    "+ plus\n\n* star\n\n- dash",
    "10) ten\n11) eleven",
]
REST = [
    "| a | b |\n| :-- | --: |\n| 1 | `x|y` |\n| $z$ | **w** |\n\nafter",
    "| a |\n| - |\n| 1 | 2 | 3 |\n|\n| [1] |",
    "a | b\n- | -\n1 | 2\nno pipe ends it",
    "| head only |\n| --- |",
    "| not | a table |\n| 1 | 2 |",
    "Text before\n| a | b |\n| - | - |\n| 1 | 2 |",
    "$$\n\\frac{a}{b}\n$$\n\nand $$x$$ inline.",
    "\\[\n\\sum_i x_i\n\\]\ntext",
    "$$ a = b $$\n\n$$\nnever closed\n\ntext",
    "$$\na\n\nb\n$$",
    'A [reference][r] and [another] and [later][l].\n\n[r]: https://example.org/r "Title"\n'
    "[another]: <https://example.org/a>\n\nMore.\n\n[l]: https://example.org/l",
    "[def]: https://example.org/d\n\nFirst [def].\n\nSecond [text][def].\n\nThird [def][].",
    "[a]: https://example.org/1\n\n[a]: https://example.org/2\n\nUses [a].",
    "- [in list][x]\n\n> [in quote][x]\n\n| [in table][x] |\n| - |\n| [x] |\n\n"
    "[x]: https://example.org",
    "Windows\r\nlines\r\n\r\n```\r\ncode\r\n```\r\n",
    "tab\tin text\n\n-\ttab item\n\n\tcode by tab",
    "line\u2028separator\u2029here \ufeff and \ufffd",
    "Private \ue0f0 and \ue200 characters \uf8ff.",
    "Reversed \u202etext\u202c and `co\u202ede` and \u061cmore.",
    "A<br>B\n\n<details><summary>x</summary>\n\ntext\n\n</details>",
    "--- \n- - -\n___",
    "###### six\n####### seven\n#nospace\n# closed #",
    "Footnote[^1].\n\n[^1]: the note",
    "word " * 60,
]
CORPUS = [*INLINE, *BLOCKS, *REST, "\n\n".join([*INLINE, *BLOCKS[:12], *REST[:9], *INLINE[::-1]])]

# A page's own modules, under the addresses that it uses.
PRELUDE = """const main = document.querySelector('script[type=module]').src;
const base = main.slice(0, -'main.js'.length);
const load = (name) => import(base + name);
const {AnswerText} = await load('answer/answer-text.js');
const {slices} = await load('answer/slices.js');
const some = new Map([[1, {title: 'One', locator: '', text: 'x'}],
                          [2, {title: 'Two', locator: '', text: 'y'}]]);
const passages = some;
const place = () => {
  const root = document.createElement('div');
  root.className = 'prose';
  document.querySelector('#messages').append(root);
  return root;
};
const still = async (root) => {
  const isReady = () => slices.isIdle && !root.querySelector('.math:not(.math-set)');
  while (!isReady()) await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  await slices.whenIdle();
};
// A text that grows is drawn over several frames where the machine is slow.
const drawn = async (root, end) => {
  const isDrawn = () => root.textContent.trimEnd().endsWith(end);
  while (!isDrawn()) await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
};
const grown = async (text, size, {passages, question} = {passages: some, question: ''}) => {
  const root = place();
  const answer = new AnswerText(root, question);
  for (let at = size; at < text.length; at += size) answer.grow(text.slice(0, at), [], passages);
  await answer.settle(text, [], passages, []);
  await still(root);
  root.normalize();
  return root;
};"""
COMPARE = f"""async ({{texts, size}}) => {{ {PRELUDE}
  const wrong = [];
  for (const text of texts) {{
    const whole = await grown(text, Infinity);
    const parts = await grown(text, size);
    if (whole.innerHTML !== parts.innerHTML) wrong.push([text, whole.innerHTML, parts.innerHTML]);
    whole.remove();
    parts.remove();
  }}
  return wrong;
}}"""
AS_MARKDOWN = f"""async (texts) => {{ {PRELUDE}
  const {{parseBlocks, renderBlocks}} = await load('answer/markdown.js');
  const {{cleaned}} = await load('answer/seams.js');
  const shape = (root) => {{
    root.querySelectorAll('.code-head').forEach((head) => head.remove());
    root.querySelectorAll('.math').forEach((node) => (node.textContent = node.dataset.tex));
    root.querySelectorAll('.code').forEach((node) => (node.textContent = node.textContent));
    const nodes = [...root.querySelectorAll('*')].map((node) =>
      [node.tagName, node.getAttribute('href') ?? node.getAttribute('start') ?? ''].join());
    return [nodes, root.textContent.replace(/\\s+/g, '')];
  }};
  const wrong = [];
  for (const text of texts) {{
    // What stands in the question so is no name of a source.
    const root = await grown(text, Infinity, {{passages: new Map(), question: text}});
    const plain = document.createElement('div');
    plain.append(renderBlocks(parseBlocks(cleaned(text))));
    const [one, other] = [JSON.stringify(shape(root)), JSON.stringify(shape(plain))];
    if (one !== other) wrong.push([text, one, other]);
    root.remove();
  }}
  return wrong;
}}"""


@pytest.fixture(scope="module")
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    """One page for all texts; it may report no error."""
    context = browser.new_context(base_url=server.address)
    page = context.new_page()
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


def test_the_corpus_is_large_enough() -> None:
    assert len(set(CORPUS)) == len(CORPUS) >= 60


@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_a_text_that_grew_is_the_same_as_a_whole_one(page: Page, size: int) -> None:
    texts = CORPUS[:-1] if size == 1 else CORPUS
    assert page.evaluate(COMPARE, {"texts": texts, "size": size}) == []


def test_a_text_in_pieces_is_what_markdown_makes_of_it(page: Page) -> None:
    # Without what is shown by name, and private characters, which stand for something.
    texts = [text for text in CORPUS[:-1] if "\ue200" not in text and "\u202e" not in text]
    assert len(texts) > 50
    assert page.evaluate(AS_MARKDOWN, texts) == []


GROWING = f"""async ({{text, size}}) => {{ {PRELUDE}
  const root = place();
  const answer = new AnswerText(root, '');
  const removed = [];
  const look = (records) => records.forEach((record) => record.removedNodes.forEach(
    (node) => node.nodeType === 1 && removed.push(node.tagName + '.' + node.className)));
  const observer = new MutationObserver(look);
  observer.observe(root, {{childList: true, subtree: true}});
  for (let at = size; at < text.length; at += size) answer.grow(text.slice(0, at), [], passages);
  answer.grow(text, [], passages);
  look(observer.takeRecords());
  observer.disconnect();
  root.remove();
  return removed;
}}"""
STEADY = """# Title

A paragraph with $x_1$, `code`, [1] and $y$ that goes on for a while, [2] and on.

1. First, with $a$ and

   ```python
   def f(x):
       return x
   ```
2. Second $b$.

   ```python
   y = 2
   ```

| a | b |
| - | - |
| $c$ | 2 |
| 3 | 4 |

> A quote with $d$
> and `more`

```sql
SELECT 1;
SELECT 2;
```

The end.
"""


@pytest.mark.parametrize("size", [1, 4])
def test_what_stands_is_not_made_again_while_the_text_grows(page: Page, size: int) -> None:
    removed = page.evaluate(GROWING, {"text": STEADY, "size": size})
    # A line may become something else by its next characters; what is finished stays.
    assert [node for node in removed if node.startswith(("PRE", "DIV.code", "LI", "TABLE"))] == []
    # While "$a$ and `co" is read, or a row of a table: a few of what belongs to the last line.
    formulas = [node for node in removed if node.startswith("SPAN.math")]
    assert len(formulas) <= 2 * size, formulas
    assert len(removed) < 60, removed


ENDED = f"""async ({{text, sentence}}) => {{ {PRELUDE}
  const root = place();
  const answer = new AnswerText(root, '');
  answer.grow(text, [], passages);
  await drawn(root, 'The end.');
  await still(root);
  const blocks = [...root.children];
  const inner = new Map(blocks.map((block) => [block, [...block.querySelectorAll('*')]]));
  const start = text.indexOf(sentence);
  const citations = [{{n: 1, start, end: start + sentence.length, marks: [[0, 1]], by: 'match'}}];
  await answer.settle(text, [], passages, citations);
  await still(root);
  const kept = [...root.children].map((block, index) =>
    block === blocks[index] && inner.get(block).every((node) => block.contains(node)));
  const first = answer.settle(text, [], passages, citations);
  const isSame = first === answer.settle(text, [], passages, citations);
  return {{kept, isSame, cite: root.querySelector('[data-index]').parentElement.textContent}};
}}"""


def test_the_citations_of_an_ended_answer_leave_other_blocks_alone(page: Page) -> None:
    text = f"{STEADY}\n\nIt closes at nine.\n\n{STEADY}"
    found = page.evaluate(ENDED, {"text": text, "sentence": "It closes at nine."})
    # Even the block with the chip keeps its element: only its text is another.
    assert found["kept"] == [True] * len(found["kept"])
    assert found["cite"] == "It closes at nine.1"
    assert found["isSame"]


MARKED = f"""async ({{text, ends}}) => {{ {PRELUDE}
  const citations = ends.map((end) => ({{n: 1, start: 0, end, marks: [], by: 'match'}}));
  const root = place();
  const answer = new AnswerText(root, '');
  await answer.settle(text, [], passages, citations);
  const plain = await grown(text, Infinity);
  await still(root);
  const shape = (node) =>
    [...node.querySelectorAll('*:not(.cite)')].map((one) => one.tagName);
  return [shape(root), shape(plain), root.querySelectorAll('.cite').length];
}}"""


@pytest.mark.parametrize("mark", ["4.", "2)", "-", "> 1.", "##", "```", "$$", "| - | - |", "==="])
def test_a_citation_leaves_the_sign_of_a_block_what_it_is(page: Page, mark: str) -> None:
    text = f"A first line.\n\n{mark} Item\n\nlast"
    if mark in ("```", "$$"):
        text = f"{mark}\nx\n{mark}\n\nlast"
    elif mark in ("| - | - |", "==="):
        text = f"| a | b |\n{mark}\n| 1 | 2 |\n\nlast"
    end = text.rindex(mark) + len(mark)
    marked, plain, num_chips = page.evaluate(MARKED, {"text": text, "ends": [end, len(text)]})
    assert marked == plain
    assert num_chips == 1


REFERENCES = f"""async () => {{ {PRELUDE}
  const root = place();
  const answer = new AnswerText(root, '');
  const text = ['[a]: https://example.org/a', 'One [a].', 'Two [later][b].', 'More.',
                'Yet more.', '[b]: https://example.org/b',
                'Three [a] and [b].', 'End.'].join('\\n\\n');
  const links = () => [...root.querySelectorAll('a')].map((link) => link.pathname);
  for (let at = 1; at <= text.length; at += 1) answer.grow(text.slice(0, at), [], passages);
  await drawn(root, 'End.');
  const growing = links();
  await answer.settle(text, [], passages, []);
  return [growing, links()];
}}"""


def test_link_definitions_hold_behind_what_is_finished_and_before_it_at_the_end(
    page: Page,
) -> None:
    assert page.evaluate(REFERENCES) == [["/a", "/a", "/b"], ["/a", "/b", "/a", "/b"]]


CHANGING = f"""async ({{texts}}) => {{ {PRELUDE}
  const root = place();
  const answer = new AnswerText(root, '');
  const found = [];
  for (const [kind, text, seams] of texts) {{
    if (kind === 'grow') {{
      answer.grow(text, seams, passages);
      await drawn(root, /\\w+\\W?$/.exec(text)?.[0] ?? '');
    }} else await answer.settle(text, seams, passages, []);
    await still(root);
    const copy = root.cloneNode(true);
    copy.querySelectorAll('.seam').forEach((seam) => seam.replaceWith(
      seam.matches('.seam-line') ? '=' : '^'));
    copy.querySelectorAll('.code-head').forEach((head) => head.remove());
    found.push(copy.textContent.replace(/\\n/g, ''));
  }}
  return found;
}}"""


def test_a_text_may_become_shorter_or_another_one(page: Page) -> None:
    texts = [
        ["grow", "One.\n\nTwo.\n\nThree and", []],
        ["grow", "One.\n\nTwo.", []],
        ["settle", "One.\n\nTwo.\n\nFour.\n\nFive.", []],
        ["grow", "One.\n\nTwo.\n\nFour.\n\nFive. And six.", [24]],
        ["settle", "One.", []],
        ["grow", "Else.", []],
        ["settle", "", []],
    ]
    assert page.evaluate(CHANGING, {"texts": texts}) == [
        "One.Two.Three and",
        "One.Two.",
        "One.Two.Four.Five.",
        "One.Two.Four.Five.^ And six.",
        "One.",
        "Else.",
        "",
    ]


def test_a_seam_without_a_place_stands_above_its_block(page: Page) -> None:
    formula = "$$\n" + "+ - \n" * 150 + "$$\n"
    texts = [
        ["settle", f"Before.\n\n{formula}", [30]],
        ["grow", f"Before.\n\n{formula}", [len(formula) - 20]],
        ["settle", "Some words here.", [5]],
        ["settle", "```\nab + cd\n```", [5]],
    ]
    found = page.evaluate(CHANGING, {"texts": texts})
    assert found[0].startswith("Before.=+−+−")
    # More may come that has a place for it.
    assert "=" not in found[1]
    assert found[2:] == ["Some ^words here.", "a^b + cd"]


COPIED = f"""async ({{text}}) => {{ {PRELUDE}
  const written = [];
  navigator.clipboard.writeText = async (text) => written.push(text);
  const root = await grown(text, 5);
  for (const button of root.querySelectorAll('.code-copy')) button.click();
  await new Promise((done) => setTimeout(done));
  return {{written, shown: [...root.querySelectorAll('code')].map((code) => code.textContent)}};
}}"""


def test_controls_in_code_are_shown_by_name_and_copied_as_written(page: Page) -> None:
    code = "if x: # \u202eadmin\u2066 \u061c\n    a\u200bb = '\ufeff'\n"
    text = f"Text `in\u202eline`.\n\n```python\n{code}```\n\n- item\n\n  ```\n  {code[:9]}\n  ```\n"
    found = page.evaluate(COPIED, {"text": text})
    assert found["written"] == [code, f"{code[:9]}\n"]
    assert found["shown"] == [
        "in⟨U+202E⟩line",
        "if x: # ⟨U+202E⟩admin⟨U+2066⟩ ⟨U+061C⟩\n    a⟨U+200B⟩b = '⟨U+FEFF⟩'\n",
        "if x: # ⟨U+202E⟩\n",
    ]


SLICES = """async () => {
  const base = document.querySelector('script[type=module]').src.replace(/main\\.js$/, '');
  const {Slices} = await import(base + 'answer/slices.js');
  const slices = new Slices({budgetMs: 4});
  const done = [];
  const turns = (name, count) => () => (done.push(name), (count -= 1) > 0);
  slices.add(turns('late', 2), {priority: 5});
  slices.add(turns('a', 2));
  slices.add(turns('b', 1));
  slices.add(turns('never', 1)).cancel();
  slices.add(turns('first', 1), {priority: -1});
  await slices.whenIdle();
  const order = done.splice(0);
  // One slice holds what fits into its time; a slow piece of work ends it.
  let frames = 0;
  const count = () => (frames += 1, requestAnimationFrame(count));
  requestAnimationFrame(count);
  const slow = () => { const end = performance.now() + 5; while (performance.now() < end); };
  const at = [];
  for (let n = 0; n < 4; n += 1) slices.add(() => (at.push(frames), slow()));
  await slices.whenIdle();
  return {order, at, isIdle: slices.isIdle};
}"""


def test_work_that_can_wait_is_done_in_its_order_a_slice_a_frame(page: Page) -> None:
    found = page.evaluate(SLICES)
    assert found["order"] == ["first", "a", "a", "b", "late", "late"]
    assert len(set(found["at"])) == 4
    assert found["isIdle"]


FRAMES = """async () => {
  const base = document.querySelector('script[type=module]').src.replace(/main\\.js$/, '');
  const {afterRender, forgetFrame, onRender} = await import(base + 'frames.js');
  const done = [];
  const measure = () => done.push('measure');
  const render = () => { done.push('render'); afterRender(measure); };
  const never = () => done.push('never');
  afterRender(measure);
  onRender(render);
  onRender(render);
  onRender(never);
  forgetFrame(never);
  await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
  return done;
}"""


def test_a_frame_renders_each_thing_once_and_measures_last(page: Page) -> None:
    assert page.evaluate(FRAMES) == ["render", "measure"]


def test_math_and_highlighter_are_fetched_once_and_only_when_needed(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url))
    peer.answer([*opening(), *deltas("It costs $5, and $10 more. No `formula`."), finish()])
    chat.ask("What?")
    chat.wait_end()
    assert not [url for url in asked if "katex" in url or "highlight" in url]
    peer.answer([*opening(), *deltas("$x$ and $y$\n\n```py\nx\n```\n\n```py\ny\n```"), finish()])
    chat.ask("And?")
    expect(chat.answer.locator(".katex")).to_have_count(2)
    chat.wait_end()
    for name in ("katex.min.js", "katex.min.css", "highlight.min.js"):
        assert len([url for url in asked if url.endswith(name)]) == 1


def settled(open_chat: OpenChat, *events: Event, **context: Any) -> ChatPage:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(passage(1), **context), *events, finish()])
    chat.ask("What?")
    chat.wait_end()
    return chat


def test_a_copy_button_that_has_the_focus_keeps_it_while_a_list_grows(open_chat: OpenChat) -> None:
    peer = ScriptedPeer()
    chat = open_chat(before=peer.attach_to)
    peer.answer([*opening(), *deltas("1. Do\n\n   ```py\n   x = 1\n   ```\n\n2. Then")])
    chat.ask("What?")
    copy = chat.answer.locator(".code-copy")
    copy.focus()
    peer.send(*deltas(" this, and\n\n   ```py\n   y = 2\n   ```\n\n3. End."), finish())
    chat.wait_end()
    expect(chat.answer.locator(".code-copy")).to_have_count(2)
    expect(copy.first).to_be_focused()


def test_the_language_of_the_page_is_that_of_buttons_in_the_text(open_chat: OpenChat) -> None:
    chat = settled(open_chat, *deltas("```py\nx\n```\n\nOne [1]."))
    expect(chat.answer.locator(".code-copy")).to_have_text("Copy")
    chip = chat.answer.locator(".cite")
    english = chip.get_attribute("aria-label")
    chat.page.get_by_role("button", name="中文").click()
    expect(chat.answer.locator(".code-copy")).to_have_text("复制")
    assert chip.get_attribute("aria-label") != english
