"""`ChatPage`: the page as its tests use it."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

QUESTION = "When are office hours?"

HAS_ENDED = """(n) => { const all = document.querySelectorAll('.answer');
  const one = n < 0 ? all[all.length + n] : all[n];
  return one && one.dataset.state !== 'running'
    && one.querySelector('.prose').hasAttribute('data-settled'); }"""
"""Whether the `n`th answer, from the end for an `n` below zero, has ended and all of it is shown:
its state changes at once, its text with the next frames."""

WITHOUT_CHIPS = """(prose) => {
  const copy = prose.cloneNode(true);
  for (const chip of copy.querySelectorAll('.cite, .unsourced')) chip.remove();
  return [...copy.childNodes].map((block) => block.textContent).join('\\n');
}"""


FRAMES = "() => new Promise((end) => requestAnimationFrame(() => requestAnimationFrame(end)))"
"""What has happened by now is drawn."""


class ChatPage:
    """One open page."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.question = page.locator("#question")
        self.questions = page.locator(".question-text")
        self.answers = page.locator(".answer")
        self.status = page.locator("#status")

    @property
    def answer(self) -> Locator:
        """The newest answer."""
        return self.answers.last

    @property
    def text(self) -> str:
        """The newest answer's text as it stands, blanks at the ends removed; chips that lead to
        sources are no text."""
        return str(self.answer.locator("> .prose").evaluate(WITHOUT_CHIPS)).strip()

    def ask(self, text: str = QUESTION) -> None:
        """Writes a question and sends it by Enter."""
        num_answers = self.answers.count()
        self.question.fill(text)
        self.question.press("Enter")
        self.answers.nth(num_answers).wait_for()

    def wait_text(self, num_chars: int) -> str:
        """Waits until the newest answer has so many characters; its text then."""
        self.page.wait_for_function(
            """(n) => [...document.querySelectorAll('.answer > .prose')].at(-1)
                 ?.textContent.trim().length >= n""",
            arg=num_chars,
        )
        return self.text

    def wait_stored(self, condition: str = "messages.at(-1).text !== ''") -> None:
        """Waits until the stored `messages` of the shown conversation are as `condition` says, in
        JavaScript: by default until something of the newest answer is stored."""
        self.page.evaluate(
            f"""async (id) => {{
                 const read = async () => (await fetch(`/api/conversations/${{id}}`)).json();
                 const isSo = ({{ messages }}) => {condition};
                 while (!isSo(await read())) await new Promise(requestAnimationFrame);
               }}""",
            self.page.url.rpartition("/")[2],
        )

    def wait_end(self, state: str = "finished") -> str:
        """Waits until the newest answer has ended as `state`; its text then."""
        # A continuation that was just asked for shows in the next frame, the old end until then.
        self.page.evaluate(FRAMES)
        ended = self.page.wait_for_function(
            f"""(n) => {{
                 if (!({HAS_ENDED})(n)) return null;
                 const answer = [...document.querySelectorAll('.answer')].at(n);
                 const prose = answer.querySelector(':scope > .prose');
                 return [answer.dataset.state, ({WITHOUT_CHIPS})(prose)];
               }}""",
            arg=-1,
        )
        found, text = ended.json_value()
        assert found == state
        return str(text).strip()

    def is_wider_than_screen(self) -> bool:
        """Whether the page could be scrolled sideways."""
        return bool(
            self.page.evaluate(
                """() => document.documentElement.scrollWidth > innerWidth
                  || document.querySelector('#scroll').scrollWidth
                     > document.querySelector('#scroll').clientWidth"""
            )
        )
