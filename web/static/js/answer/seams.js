// Seams: where a continuation begins. A mark travels through Markdown as one private character and
// becomes an element afterwards.

import { element } from "../elements.js";
import { t } from "../i18n.js";

export const SEAM = "\uE0F0";
/** How far after a continuation's first character its mark may move to not break Markdown. */
const SEAM_REACH = 600;
const PLAIN = /[\p{L}\p{N}]/u;
/** Controls that would turn the reading direction of the text around them. */
const UNSEEN = /[\u202A-\u202E\u2066-\u2069\u200E\u200F\u0000]/g;

/** The text with a mark at each seam, moved on to a place between two plain characters. */
export function markSeams(text, seams) {
  let result = "";
  let from = 0;
  const clean = text.replaceAll(SEAM, "\uFFFD");
  for (const seam of seams) {
    const at = seamPlace(clean, seam);
    if (at === null || at < from) continue;
    result += clean.slice(from, at) + SEAM;
    from = at;
  }
  return cleaned(result + clean.slice(from));
}

function seamPlace(text, seam) {
  for (let at = Math.max(seam, 1); at < Math.min(text.length, seam + SEAM_REACH); at += 1) {
    const before = text[at - 1] === " " ? (text[at - 2] ?? "") : text[at - 1];
    if (PLAIN.test(text[at]) && PLAIN.test(before) && !isInFormula(text, at)) return at;
  }
  return null;
}

/** A mark inside a formula would be taken out of it, and not be seen. */
function isInFormula(text, at) {
  const isOdd = (part, mark) => part.split(mark).length % 2 === 0;
  const line = text.slice(text.lastIndexOf("\n", at - 1) + 1, at);
  return isOdd(text.slice(0, at), "$$") || isOdd(line, "$");
}

/** The text as it is parsed: without direction controls, every line end a newline. */
export function cleaned(text) {
  return text.replace(UNSEEN, "").replace(/\r\n?/g, "\n");
}

/** Replaces the mark of a seam by an element, also inside code. */
export function showSeams(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) if (walker.currentNode.data.includes(SEAM)) found.push(walker.currentNode);
  for (const node of found) {
    const parts = node.data.split(SEAM);
    const seam = () => element("span", { class: "seam", title: t("seam.title"), role: "img", "aria-label": t("seam.title") });
    node.replaceWith(...parts.flatMap((part, index) => (index === 0 ? [part] : [seam(), part])));
  }
}
