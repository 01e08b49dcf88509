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

/** `text` in pieces: strings, and `mark(text)` for the ranges of `marks` (in code points). */
export function withMarks(text, marks, mark) {
  const points = Array.from(text);
  const piece = (from, to) => cleaned(points.slice(from, to).join(""));
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
