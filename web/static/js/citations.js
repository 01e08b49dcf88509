// [1] in an answer becomes a chip, where the answer has a source of that number.

import { element } from "./elements.js";
import { t } from "./i18n.js";

const CITATION = /[[【](\d{1,2}(?:\s*[,，、]\s*\d{1,2})*)[\]】]/g;
const SKIPPED = "pre, code, a, .math, .cite";

/** Replaces citations below `root` by chips; `passages` maps a number to its passage. */
export function chipCitations(root, passages) {
  if (passages.size === 0) return;
  for (const node of textNodes(root)) {
    const parts = split(node.data, passages);
    if (parts !== null) node.replaceWith(...parts);
  }
}

function textNodes(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (/[[【]/.test(node.data) && !node.parentElement?.closest(SKIPPED)) nodes.push(node);
  }
  return nodes;
}

function split(text, passages) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(CITATION)) {
    const numbers = match[1].split(/\s*[,，、]\s*/).map(Number);
    if (!numbers.every((n) => passages.has(n))) continue;
    parts.push(text.slice(end, match.index), ...numbers.map((n) => chip(n, passages.get(n))));
    end = match.index + match[0].length;
  }
  if (parts.length === 0) return null;
  return [...parts, text.slice(end)];
}

function chip(n, passage) {
  const name = t("source.cited", { n, title: passage.title });
  return element("button", { class: "cite", type: "button", data: { n }, "aria-label": name, title: `${passage.title} · ${passage.locator}` }, String(n));
}
