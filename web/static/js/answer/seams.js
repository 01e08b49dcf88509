// Seams: where a continuation begins. A mark travels through Markdown as one private character and
// becomes a button afterwards. And the characters that are not seen but turn what is.

import { element } from "../elements.js";
import { t } from "../i18n.js";

export const SEAM = "\uE0F0";
/** Controls that would turn the reading direction of the text around them. */
const TURNING = "\\u061C\\u200E\\u200F\\u202A-\\u202E\\u2066-\\u2069";
const UNSEEN = new RegExp(`[${TURNING}\\u0000]`, "g");
/** In code also what has no width: it makes two names that look the same. */
const UNSEEN_IN_CODE = new RegExp(`[${TURNING}\\u200B\\u2060\\uFEFF]`, "g");

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
