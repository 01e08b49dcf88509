// Materials that are no Markdown, as they are: text line by line, CSV as a table.

import { element } from "../elements.js";
import { cleaned } from "../answer/seams.js";
import { utf16Offset } from "../offsets.js";

const DELIMITERS = [",", ";", "\t", "|"];
/** Lines that say which delimiter a table has. */
const SAMPLE_LINES = 20;

/** Whether a material of this format is shown as it is. */
export function isPlain(format) {
  return format === "text" || format === "csv";
}

/** Elements of `text`; what stands in `range` (in characters, or null) is in one `.passage-mark`. */
export function renderPlain(text, format, range) {
  return format === "csv" ? [table(text, range)] : lines(text, range);
}

function lines(text, range) {
  if (range === null) return [pre(text)];
  const start = utf16Offset(text, range[0]);
  const end = utf16Offset(text, range[1]);
  return [
    start > 0 ? pre(text.slice(0, start)) : null,
    element("div", { class: "passage-mark" }, pre(text.slice(start, end))),
    end < text.length ? pre(text.slice(end)) : null,
  ].filter(Boolean);
}

function pre(text) {
  // One line break at each end is the border of the element itself.
  return element("pre", { class: "plain-text" }, cleaned(text.replace(/^\n|\n$/g, "")));
}

function table(text, range) {
  const start = range === null ? Infinity : utf16Offset(text, range[0]);
  const end = range === null ? -1 : utf16Offset(text, range[1]);
  const body = element(
    "tbody",
    {},
    rows(text).map(({ cells, from, to }) =>
      element("tr", { class: from < end && to > start ? "passage-mark" : null }, cells.map((cell) => element("td", { dir: "auto" }, cleaned(cell)))),
    ),
  );
  return element("div", { class: "table-scroll", tabindex: "0" }, element("table", { class: "plain-table" }, body));
}

/** Rows of a CSV text: [{cells, from, to}] with their UTF-16 offsets; empty lines are none. */
function rows(text) {
  const delimiter = delimiterOf(text);
  const found = [];
  let cells = [];
  let cell = "";
  let from = 0;
  let isQuoted = false;
  const endRow = (to) => {
    cells.push(cell);
    if (cells.some((one) => one.trim() !== "")) found.push({ cells, from, to });
    cells = [];
    cell = "";
    from = to;
  };
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at];
    if (isQuoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') {
        cell += sign;
        at += 1;
      } else isQuoted = false;
    } else if (sign === '"' && cell === "") isQuoted = true;
    else if (sign === delimiter) {
      cells.push(cell);
      cell = "";
    } else if (sign === "\n") endRow(at + 1);
    else if (sign !== "\r") cell += sign;
  }
  if (cell !== "" || cells.length > 0) endRow(text.length);
  return found;
}

/** The sign that the first lines have most often, the same number of times in most of them. */
function delimiterOf(text) {
  const sample = text.split("\n", SAMPLE_LINES).filter((line) => line.trim() !== "");
  const score = (sign) => {
    const counts = sample.map((line) => line.split(sign).length - 1);
    const usual = counts.filter((count) => count > 0 && count === counts[0]).length;
    return usual * 100 + Math.min(99, counts[0] ?? 0);
  };
  return DELIMITERS.reduce((best, sign) => (score(sign) > score(best) ? sign : best), DELIMITERS[0]);
}
