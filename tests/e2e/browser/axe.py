"""What an automatic check of accessibility finds on a page (axe-core, of `vendor/`), and what the
page's live regions have said."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

_AXE = Path(__file__).parent / "vendor" / "axe-core-4.14.1" / "axe.min.js"

TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
"""The rules of WCAG 2.2 at level AA."""

# A page that names no result of its own hides nothing: each node is told with its rule.
# What has just changed, as the width has, is styled and laid out with the next frames.
_RUN = """async ([context, tags, allowed]) => {
  for (let n = 0; n < 2; n += 1) await new Promise(requestAnimationFrame);
  const options = {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']};
  const {violations} = await axe.run(context ?? document, options);
  return violations.filter(({id}) => !allowed.includes(id)).flatMap(({id, help, nodes}) =>
    nodes.map(({target, any}) => `${id}: ${target.join(' ')} – ${any[0]?.message ?? help}`));
}"""

_LISTEN = """(() => {
  const said = [];
  window.__said = said;
  const region = (node) => (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement)
    ?.closest('[role=status], [role=alert], [aria-live=polite], [aria-live=assertive]');
  const last = new Map();
  new MutationObserver((changes) => {
    for (const one of new Set(changes.map(({target}) => region(target)).filter(Boolean))) {
      const text = one.hidden ? '' : one.textContent.trim();
      if (text !== '' && text !== last.get(one)) said.push(text);
      last.set(one, text);
    }
  }).observe(document, {subtree: true, childList: true, characterData: true,
    attributes: true, attributeFilter: ['hidden']});
})()"""


@cache
def _source() -> str:
    return _AXE.read_text("utf-8")


def violations(page: Page, *, only: str | None = None, allowed: Collection[str] = ()) -> list[str]:
    """Each breach on the page as it stands, "rule: selector – why"; `only`: below a selector,
    `allowed`: rules that are not asked."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(_source())
    found: list[str] = page.evaluate(_RUN, [only, list(TAGS), list(allowed)])
    return found


def listen(page: Page) -> None:
    """From the next load on `announced` knows what is said."""
    page.add_init_script(_LISTEN)


def announced(page: Page) -> list[str]:
    """Everything that a live region of the page has said since it was loaded, in order."""
    said: Any = page.evaluate("() => window.__said")
    return list(said)
