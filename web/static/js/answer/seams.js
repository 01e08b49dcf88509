// Seams: where a continuation begins. A mark travels through Markdown as one private character and
// becomes a button afterwards. And the characters that are not seen but turn what is.

import { element } from "../elements.js";
import { t } from "../i18n.js";

export const SEAM = "\uE0F0";
/** How far after a continuation's first character its mark may move to not break Markdown. */
const SEAM_REACH = 600;
const PLAIN = /[\p{L}\p{N}]/u;
/** Controls that would turn the reading direction of the text around them. */
const TURNING = "\\u061C\\u200E\\u200F\\u202A-\\u202E\\u2066-\\u2069";
const UNSEEN = new RegExp(`[${TURNING}\\u0000]`, "g");
/** In code also what has no width: it makes two names that look the same. */
const UNSEEN_IN_CODE = new RegExp(`[${TURNING}\\u200B\\u2060\\uFEFF]`, "g");

/**
 * {text, lines}: the text with a mark at each seam, moved on to a place between two plain
 * characters, and the offsets in it of seams that have no such place. While the text grows
 * (`isWhole` false) one may still come.
 */
export function markSeams(text, seams, isWhole) {
  const clean = text.replaceAll(SEAM, "\uFFFD");
  const lines = [];
  let result = "";
  let from = 0;
  for (const seam of seams) {
    const at = seamPlace(clean, seam, from);
    if (at !== null) {
      result += clean.slice(from, at) + SEAM;
      from = at;
    } else if (seam < clean.length && (isWhole || clean.length >= seam + SEAM_REACH)) {
      lines.push(result.length + Math.max(0, seam - from));
    }
  }
  return { text: result + clean.slice(from), lines };
}

function seamPlace(text, seam, from) {
  const first = Math.max(seam, from, 1);
  const end = Math.min(text.length, seam + SEAM_REACH);
  // A mark inside a formula would be taken out of it, and not be seen.
  let isInDisplay = text.slice(0, first).split("$$").length % 2 === 0;
  let isInLine = text.slice(text.lastIndexOf("\n", first - 1) + 1, first).split("$").length % 2 === 0;
  for (let at = first; at < end; at += 1) {
    const before = text[at - 1] === " " ? (text[at - 2] ?? "") : text[at - 1];
    if (!isInDisplay && !isInLine && PLAIN.test(text[at]) && PLAIN.test(before)) return at;
    if (text[at] === "\n") isInLine = false;
    else if (text[at] === "$") isInLine = !isInLine;
    if (text.startsWith("$$", at - 1) && text[at - 2] !== "$") isInDisplay = !isInDisplay;
  }
  return null;
}

/** A text that is shown as it is: without direction controls, every line end a newline. */
export function cleaned(text) {
  return withoutControls(text).replace(/\r\n?/g, "\n");
}

/** `text` without the controls that would turn its reading direction. */
export function withoutControls(text) {
  return text.replace(UNSEEN, "");
}

/** `code` with the name of each character that is not seen in its place, as ⟨U+202E⟩. */
export function withNamedControls(code) {
  return code.replace(UNSEEN_IN_CODE, (control) => `⟨U+${control.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** Replaces the mark of a seam by a button, also inside code. */
export function showSeams(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) if (walker.currentNode.data.includes(SEAM)) found.push(walker.currentNode);
  for (const node of found) {
    const parts = node.data.split(SEAM);
    node.replaceWith(...parts.flatMap((part, index) => (index === 0 ? [part] : [seamButton("seam"), part])));
  }
}

/** The seam above a block in which there is no place for one. */
export function seamLine() {
  return seamButton("seam seam-line");
}

function seamButton(classes) {
  const title = t("seam.title");
  const translated = { "data-t-title": "seam.title", "data-t-aria-label": "seam.title" };
  return element("button", { class: classes, type: "button", title, "aria-label": title, ...translated });
}
