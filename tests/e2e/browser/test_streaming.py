"""The longest answer that the page must bear, on the real server over a real socket: what was
written is what stands there, and what it costs. How long single tasks take is measured by
scripts/bench_page.py, on a machine that does nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.browser.page_metrics import PageMetrics, PageTimes
from tests.e2e.browser.writing_server import (
    LONG_QUESTION,
    NUM_CHARS,
    NUM_FENCES,
    NUM_FORMULAS,
    OPTIONS,
    long_answer,
    num_formulas,
)
from tests.support.server_process import ServerProcess

MOST_CPU_MS_PER_TOKEN = 4.0
"""Script, style and layout of the page's thread alone. About 1 ms where the machine is free; busy
neighbours make caches cold and each millisecond longer."""

COUNT = """() => {
  const counts = {codeGone: 0, tablesGone: 0, formulasGone: 0, gone: 0, most: 0};
  window.counts = counts;
  new MutationObserver((records) => {
    let made = 0;
    for (const {target, addedNodes, removedNodes} of records) {
      if (!target.closest('.answer > .prose')) continue;
      made += addedNodes.length;
      for (const node of removedNodes) {
        counts.gone += 1;
        if (node.nodeType !== 1) continue;
        counts.codeGone += node.matches('.code');
        counts.tablesGone += node.matches('table, .table-scroll, li');
        counts.formulasGone += node.matches('.math') + node.querySelectorAll('.math').length;
      }
    }
    counts.most = Math.max(counts.most, made);
  }).observe(document.querySelector('#messages'), {childList: true, subtree: true});
}"""
SHOWN = """() => { const prose = document.querySelector('.answer .prose');
  const count = (selector) => prose.querySelectorAll(selector).length;
  return {code: count('.code'), listed: count('li .code'), formulas: count('.math'),
          set: count('.math .katex'), tables: count('table'), chips: count('.cite'),
          links: count('a'), highlighted: count('code:has(span)')}; }"""
CODE = """() => [...document.querySelectorAll('.answer .prose pre code')]
  .map((code) => code.textContent)"""


class Written:
    """A page on which the long answer was written."""

    def __init__(self, page: Page, spent: PageTimes) -> None:
        self.page = page
        self.spent = spent
        self.counts: dict[str, int] = page.evaluate("() => window.counts")
        self.num_deltas: int = page.evaluate("() => window.pageMetrics.numDeltas")
        self.shown: dict[str, int] = page.evaluate(SHOWN)


@pytest.fixture(scope="module")
def written(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    module = "tests.e2e.browser.writing_server"
    folder = tmp_path_factory.mktemp("writing")
    with ServerProcess(folder, *OPTIONS, "0.0005", module=module) as server:
        context = browser.new_context(base_url=server.address)
        page = context.new_page()
        page.set_default_timeout(100_000)
        metrics = PageMetrics(page)
        page.goto("/")
        page.wait_for_selector("html.is-ready")
        page.evaluate(COUNT)
        page.locator("#question").fill(LONG_QUESTION)
        page.locator("#question").press("Enter")
        page.wait_for_function("() => window.pageMetrics.first !== null")
        before = metrics.times()
        page.wait_for_function(
            """() => { const prose = document.querySelector('.answer .prose');
                 return prose.hasAttribute('data-settled')
                   && !prose.querySelector('.math:not(.math-set)'); }"""
        )
        yield Written(page, metrics.times().since(before))
        context.close()


def test_the_answer_is_what_the_budget_speaks_of() -> None:
    text = long_answer()
    assert len(text) == NUM_CHARS == 20_000
    assert text.count("```") == 2 * NUM_FENCES == 80
    assert num_formulas(text) == NUM_FORMULAS == 200


def test_everything_that_was_written_stands_there(written: Written) -> None:
    shown: dict[str, Any] = dict(written.shown)
    assert shown.pop("chips") >= 1
    assert shown.pop("links") >= 8
    assert shown.pop("highlighted") >= NUM_FENCES // 2
    assert shown == {"code": 40, "listed": 8, "formulas": 200, "set": 200, "tables": 3}
    conversation = written.page.url.rpartition("/")[2]
    reply = written.page.request.get(f"/api/conversations/{conversation}")
    text = reply.json()["messages"][-1]["text"]
    assert len(text) == NUM_CHARS
    fences = [part.partition("\n")[2] for part in text.split("```")[1::2]]
    code = written.page.evaluate(CODE)
    assert [one.split() for one in code] == [one.split() for one in fences]


def test_what_was_finished_was_not_made_again(written: Written) -> None:
    counts = written.counts
    assert (counts["codeGone"], counts["tablesGone"]) == (0, 0), counts
    # A row of a table is made again while it is written: each of its formulas a few times.
    assert counts["formulasGone"] < NUM_FORMULAS, counts
    assert counts["gone"] < written.num_deltas, counts


def test_each_token_costs_little(written: Written) -> None:
    assert written.num_deltas > 500
    tokens = NUM_CHARS / 4
    assert 1000 * written.spent.work / tokens < MOST_CPU_MS_PER_TOKEN, written.spent


def test_the_stored_answer_looks_the_same_after_a_reload(written: Written) -> None:
    before = written.page.evaluate(CODE)
    written.page.reload()
    written.page.wait_for_function(
        """() => { const prose = document.querySelector('.answer .prose');
             return prose?.hasAttribute('data-settled')
               && !prose.querySelector('.math:not(.math-set)'); }"""
    )
    written.page.wait_for_function(
        "(n) => document.querySelectorAll('.answer code:has(span)').length === n",
        arg=written.shown["highlighted"],
    )
    assert written.page.evaluate(SHOWN) == written.shown
    assert written.page.evaluate(CODE) == before
