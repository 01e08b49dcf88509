// Where in a file something stands, in words, and what of a passage is marked.

import { number, t } from "../i18n.js";
import { cleaned } from "../answer/seams.js";

/** Between the place and the headings of a locator. */
const SEPARATOR = " › ";

/** "page 3", "pages 3–4", "slide 7", "row 12"; null where the file has no such places. */
export function placeText(place) {
  if (!place) return null;
  const { page, to_page: toPage, slide, to_slide: toSlide, row, to_row: toRow } = place;
  if (page) return range("place.page", "place.pages", page, toPage);
  if (slide) return range("place.slide", "place.slides", slide, toSlide);
  if (row) return range("place.row", "place.rows", row, toRow);
  return null;
}

function range(one, several, from, to) {
  if (!to || to === from) return t(one, { n: number(from) });
  return t(several, { from: number(from), to: number(to) });
}

/** The place of a passage and the headings above it, in the reader's language. */
export function locatorText({ place, locator }) {
  const where = placeText(place);
  if (where === null) return locator ?? "";
  // The locator says the place first, in English.
  return [where, ...(locator ?? "").split(SEPARATOR).slice(1)].join(SEPARATOR);
}

/** What Markdown says besides its words is left out: a quotation is no document. */
function plain(text) {
  return text.replace(/\*\*|`/g, "").replace(/^#{1,6} /gm, "");
}

/** A row of a table, and the line between its head and the others. */
const TABLE_ROW = /^[ \t]*\|.*\|[ \t]*$/gm;
const TABLE_RULE = /^[ \t]*\|[ \t:|-]*\|[ \t]*(?:\n|$)/gm;

/** `text`, as long as before, with the cells of tables between dots. */
function withoutBars(text) {
  const ruled = text.replace(TABLE_RULE, (rule) => " ".repeat(rule.length));
  return ruled.replace(TABLE_ROW, (row) => {
    const isEdge = (at) => row.slice(0, at).trim() === "" || row.slice(at + 1).trim() === "";
    return row.replace(/\|/g, (_, at) => (isEdge(at) ? " " : "·"));
  });
}

/** `text` in pieces: strings, and `mark(text)` for the ranges of `marks` (in code points). */
export function withMarks(text, marks, mark) {
  const points = Array.from(withoutBars(text));
  const piece = (from, to) => plain(cleaned(points.slice(from, to).join("")));
  const parts = [];
  let at = 0;
  for (const [start, end] of [...marks].sort((a, b) => a[0] - b[0])) {
    const from = Math.max(start, at);
    if (from >= end || from >= points.length) continue;
    parts.push(piece(at, from), mark(piece(from, end)));
    at = end;
  }
  return [...parts, piece(at)].filter((part) => part !== "");
}

/**
 * Some `num` characters of `text` (code points) around its first mark, from word to word: {text,
 * marks, isBegun, isEnded}, with whether something of the passage stands before and behind.
 */
export function excerpt(text, marks, num) {
  const points = Array.from(withoutBars(text));
  const first = Math.min(...marks.map(([start]) => start), points.length);
  const last = marks.length > 0 ? Math.min(points.length, marks.find(([start]) => start === first)[1]) : 0;
  // The room is shared: a little before the sentence, the rest behind it.
  const room = Math.max(0, num - Math.max(0, last - first));
  let from = marks.length > 0 ? Math.max(0, first - Math.floor(room / 3)) : 0;
  if (from > 0) from = beginning(points, from, first);
  const to = ending(points, Math.min(points.length, from + num));
  const moved = marks.map(([start, end]) => [Math.max(0, start - from), Math.min(end, to) - from]);
  return {
    text: points.slice(from, to).join(""),
    marks: moved.filter(([start, end]) => start < end),
    isBegun: from > 0,
    isEnded: to < points.length,
  };
}

/** Where a word begins between `from` and `limit`, else `from`. */
function beginning(points, from, limit) {
  for (let at = from; at < limit; at += 1) if (/\s/.test(points[at - 1])) return at;
  return from;
}

const LONGEST_WORD = 24;

/** Where a word ends shortly before `to`, else `to`. */
function ending(points, to) {
  if (to === points.length) return to;
  for (let at = to; at > Math.max(0, to - LONGEST_WORD); at -= 1) if (/\s/.test(points[at])) return at;
  return to;
}
