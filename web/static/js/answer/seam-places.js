// Where the mark of a seam can stand in a text: at the seam itself, or behind it at the first place
// where the mark leaves the Markdown what it is.

import { markdown } from "./markdown.js";
import { SEAM } from "./seams.js";

/** How far after a continuation's first character its mark may move. */
const REACH = 600;
/** Of the places that are tried: so many one after the other, then those between two letters. */
const MOST_NEXT = 24;
const MOST_TRIED = 32;
/** In a longer block only places between two letters are taken, and none is tried. */
const LONGEST_TRIED = 8000;
const PLAIN = /[\p{L}\p{N}]/u;
const MOST_KEPT = 8;

/** Blocks in which seams begin, by the text before: their offset and the link definitions. */
const beginnings = new Map();
/** Places by the text that they were found in. */
const found = new Map();

/**
 * {text, lines}: the text with a mark at each seam, and the offsets in it of seams that have no
 * place. While the text grows (`isWhole` false) one may still come.
 */
export function markSeams(text, seams, isWhole) {
  const clean = text.replaceAll(SEAM, "\uFFFD");
  const lines = [];
  let result = "";
  let from = 0;
  for (const seam of seams) {
    const at = place(clean, Math.max(seam, from, 1));
    if (at !== null) {
      result += clean.slice(from, at) + SEAM;
      from = at;
    } else if (seam < clean.length && (isWhole || clean.length >= seam + REACH)) {
      lines.push(result.length + Math.max(0, seam - from));
    }
  }
  return { text: result + clean.slice(from), lines };
}

function place(text, seam) {
  if (seam >= text.length) return null;
  const { start, references } = kept(beginnings, text.slice(0, seam), beginning);
  const block = text.slice(start, seam + REACH);
  const first = seam - start;
  const at = kept(found, `${seam} ${block}`, () => placeIn(block, first, references));
  return at === null ? null : start + at;
}

/** The last block of `text`, in which what follows begins. */
function beginning(text) {
  const env = {};
  const tokens = [];
  markdown.block.parse(text, markdown, env, tokens);
  const line = tokens.findLast(({ level, map }) => level === 0 && map)?.map[0] ?? 0;
  let start = 0;
  for (let num = 0; num < line; num += 1) start = text.indexOf("\n", start) + 1;
  return { start, references: env.references ?? {} };
}

function placeIn(block, first, references) {
  const between = places(block, first);
  if (block.length > LONGEST_TRIED) return between.next().value ?? null;
  const html = render(block, references);
  const isHarmless = (at) => leaves(html, block, at, references);
  for (let at = first; at < Math.min(block.length, first + MOST_NEXT); at += 1) if (isHarmless(at)) return at;
  let numTried = 0;
  for (const at of between) {
    if (at < first + MOST_NEXT) continue;
    if (isHarmless(at)) return at;
    numTried += 1;
    if (numTried === MOST_TRIED) break;
  }
  return null;
}

/** The places from `first` on between two letters that stand in no formula. */
function* places(text, first) {
  let isInDisplay = text.slice(0, first).split("$$").length % 2 === 0;
  let isInLine = text.slice(text.lastIndexOf("\n", first - 1) + 1, first).split("$").length % 2 === 0;
  for (let at = Math.max(1, first); at < text.length; at += 1) {
    const before = text[at - 1] === " " ? (text[at - 2] ?? "") : text[at - 1];
    if (!isInDisplay && !isInLine && PLAIN.test(text[at]) && PLAIN.test(before)) yield at;
    if (text[at] === "\n") isInLine = false;
    else if (text[at] === "$") isInLine = !isInLine;
    if (text.startsWith("$$", at - 1) && text[at - 2] !== "$") isInDisplay = !isInDisplay;
  }
}

/** Whether a mark at `at` is seen, and all else in `html`, the HTML of `text`, stays. */
function leaves(html, text, at, references) {
  // Half a character is none.
  if (/[\uDC00-\uDFFF]/.test(text[at])) return false;
  const [before, after, ...more] = render(text.slice(0, at) + SEAM + text.slice(at), references).split(SEAM);
  if (after === undefined || more.length > 0 || before + after !== html) return false;
  if (before.lastIndexOf("<") > before.lastIndexOf(">")) return false;
  const isInCode = before.lastIndexOf("<code") > before.lastIndexOf("</code");
  return isInCode || !touchesName(text.slice(0, at), text.slice(at));
}

function touchesName(before, after) {
  return /[\]】]$/.test(before) || /^[[【]/.test(after) || (/[[【][\d\s,，、]*$/.test(before) && /^[\d\s,，、]*[\]】]/.test(after));
}

function render(text, references) {
  return markdown.render(text, { lines: text.split("\n"), references: { ...references } });
}

/** What `make(key)` gives; the last few are kept. */
function kept(map, key, make) {
  if (!map.has(key)) {
    if (map.size >= MOST_KEPT) map.delete(map.keys().next().value);
    map.set(key, make(key));
  }
  return map.get(key);
}
