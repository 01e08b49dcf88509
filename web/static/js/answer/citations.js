// Chips in an answer that lead to its sources: where the model names one as [1], and behind the
// sentences that the server found support for. Numbers that no source has are dropped. Behind a
// sentence that nothing supports stands a quiet mark instead.

import { element } from "../elements.js";
import { t } from "../i18n.js";

/** The server has the same expression, and the same rules for what only looks like a marker. */
const CITATION = /[[【](\d{1,2}(?:\s*[,，、]\s*\d{1,2})*)[\]】]/g;
const BEHIND_WORD = /[A-Za-z0-9_)\]]$/;
const SKIPPED = "pre, code, a, .math, .cite, .unsourced";
/** A citation travels through Markdown as one private character, which says its index. */
const FIRST_MARK = 0xe200;
const MOST_MARKS = 256;
const MARKS = new RegExp(`[\\u{${FIRST_MARK.toString(16)}}-\\u{${(FIRST_MARK + MOST_MARKS - 1).toString(16)}}]`, "gu");
/** Lines that stop being what they are when something is appended: what opens or closes a block,
 * also the bare number or sign of a list's item. */
const FRAGILE_LINE = /^(?:\s*(?:```|~~~|\$\$|\\\])|[-=|:\s]+$|\s*(?:(?:\d{1,9}[.)]|[-+*>#])\s*)+$)/;

/**
 * The server's citations, with those of neighbouring sentences in one paragraph that rest on the
 * same source as one: behind the last of them, with the marks of all. What rests on none is marked
 * sentence by sentence: one that is not would look as if it did.
 */
export function joinCitations(text, citations) {
  if (citations === null) return null;
  const offset = offsetsOf(text);
  const joined = [];
  for (const citation of citations) {
    const last = joined.at(-1);
    const isNext =
      last !== undefined &&
      !["model", "none"].includes(last.by) &&
      citation.by === last.by &&
      citation.n === last.n &&
      /^[^\S\n]*$/.test(text.slice(offset(last.end), offset(citation.start)));
    if (isNext) joined[joined.length - 1] = { ...citation, start: last.start, marks: [...last.marks, ...citation.marks] };
    else joined.push(citation);
  }
  return joined;
}

/**
 * {text, seams} with a private character behind each sentence of `citations` that names no
 * source itself; `seams` are moved along.
 */
export function markCitations(text, seams, citations) {
  const clean = text.replace(MARKS, "\uFFFD");
  const offset = offsetsOf(clean);
  const marks = (citations ?? [])
    .map((citation, index) => ({ index, at: citation.by === "model" ? null : markPlace(clean, offset(citation.end)) }))
    .filter(({ index, at }) => at !== null && index < MOST_MARKS)
    .sort((a, b) => a.at - b.at);
  let result = "";
  let from = 0;
  for (const { index, at } of marks) {
    result += clean.slice(from, at) + String.fromCharCode(FIRST_MARK + index);
    from = at;
  }
  const moved = seams.map((seam) => seam + marks.filter(({ at }) => at < seam).length);
  return { text: result + clean.slice(from), seams: moved };
}

/** What turns an offset in characters, as the server counts, into one of the string `text`. */
function offsetsOf(text) {
  // Before how many characters those stand that are two units of the string.
  const wide = [];
  for (const { index } of text.matchAll(/[\u{10000}-\u{10FFFF}]/gu)) wide.push(index - wide.length);
  return (characters) => {
    let low = 0;
    let high = wide.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (wide[middle] < characters) low = middle + 1;
      else high = middle;
    }
    return Math.min(text.length, characters + low);
  };
}

/** `text` without the marks that markCitations has put into it. */
export function withoutCitationMarks(text) {
  return text.replace(MARKS, "");
}

/** Not behind the end of a table cell, nor on a line that would no longer close its block. */
function markPlace(text, end) {
  let at = end;
  while (at > 0 && /[\s|]/.test(text[at - 1])) at -= 1;
  const line = text.slice(text.lastIndexOf("\n", at - 1) + 1, at);
  return at === 0 || FRAGILE_LINE.test(line) ? null : at;
}

/**
 * Replaces citations below `root` by chips. `passages` maps a number to its passage, `citations`
 * are the server's, null while the answer still grows. An unknown number that stands so in the
 * `question` or a passage is a quotation and stays.
 */
export function chipCitations(root, { passages, citations, question }) {
  const quoted = [question, ...[...passages.values()].map(({ text }) => text ?? "")];
  for (const node of textNodes(root)) {
    const isSkipped = node.parentElement?.closest(SKIPPED);
    const parts = isSkipped ? [node.data.replace(MARKS, "")] : chips(node.data, passages, citations, quoted);
    if (parts.length !== 1 || parts[0] !== node.data) node.replaceWith(...parts);
  }
}

function textNodes(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) {
    if (walker.currentNode.data.search(MARKS) >= 0 || /[[【]/.test(walker.currentNode.data)) nodes.push(walker.currentNode);
  }
  return nodes;
}

function chips(text, passages, citations, quoted) {
  return named(text, passages, quoted).flatMap((part) => (typeof part === "string" ? matched(part, passages, citations) : [part]));
}

/** What the model has named. */
function named(text, passages, quoted) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(CITATION)) {
    const numbers = match[1].split(/\s*[,，、]\s*/).map(Number);
    const before = text.slice(end, match.index);
    if (isNoMarker(match, numbers, before, parts.length > 0)) continue;
    const known = numbers.filter((n) => passages.has(n));
    if (known.length < numbers.length && quoted.some((source) => source.includes(match[0]))) continue;
    parts.push(known.length > 0 ? before : before.trimEnd(), ...known.map((n) => chip(n, passages.get(n))));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)].filter((part) => part !== "");
}

function isNoMarker(match, numbers, before, isBehindMarker) {
  if (numbers.includes(0) || match.input[match.index + match[0].length] === "(") return true;
  return before === "" && isBehindMarker ? false : BEHIND_WORD.test(before.replace(MARKS, ""));
}

/** What the server has found support for, and what it has found none for. */
function matched(text, passages, citations) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(MARKS)) {
    const index = match[0].charCodeAt(0) - FIRST_MARK;
    const { n, by } = citations?.[index] ?? {};
    parts.push(text.slice(end, match.index));
    if (by === "none") parts.push(unsourced());
    else if (passages.has(n)) parts.push(chip(n, passages.get(n), index));
    end = match.index + 1;
  }
  return [...parts, text.slice(end)].filter((part) => part !== "");
}

/** Gives the chips below `root` their names in the language of now. */
export function nameChips(root, passages) {
  for (const node of root.querySelectorAll(".cite")) {
    const n = Number(node.dataset.n);
    if (passages.has(n)) node.setAttribute("aria-label", chipName(n, passages.get(n)));
  }
}

function chipName(n, { title }) {
  return t("source.cited", { n, title });
}

function unsourced() {
  const name = t("source.none");
  const translated = { "data-t-title": "source.none", "data-t-aria-label": "source.none" };
  return element("button", { class: "unsourced", type: "button", title: name, "aria-label": name, ...translated }, "?");
}

function chip(n, passage, index = null) {
  const name = chipName(n, passage);
  return element("button", { class: "cite", type: "button", data: index === null ? { n } : { n, index }, "aria-label": name, title: `${passage.title} · ${passage.locator}` }, String(n));
}
