// Sources under an answer: numbered cards, and what was found but left out.

import { element, icon } from "../elements.js";
import { helpMark } from "../answer/help-link.js";
import { number, t } from "../i18n.js";
import { renderMarked } from "./material-view.js";
import { locatorText } from "./places.js";

/** More cards than this are folded. */
const MOST_CARDS = 4;

/** The passages that the model read, by number: what a citation may point to. */
export function citable(answer) {
  const passages = answer.passages.filter((passage) => passage.used || answer.notFound);
  return new Map(passages.map((passage) => [passage.n, passage]));
}

/** The section below an answer, or null without passages. `open(passage)` shows the material. */
export function sourcesSection(answer, open) {
  const used = answer.passages.filter((passage) => passage.used);
  const left = answer.passages.filter((passage) => !passage.used);
  if (answer.notFound) {
    return left.length + used.length === 0 ? null : section(t("sources.nearest"), [...used, ...left], null, open);
  }
  if (used.length + left.length === 0) return null;
  const total = Math.max(answer.passages.length, used.length + (answer.passagesDropped ?? 0));
  const omitted = total > used.length ? leftOut(used.length, total, left, open) : null;
  return section(t("sources.title"), used, omitted, open);
}

function section(title, passages, omitted, open) {
  // Folding one card away would save nothing.
  const shown = passages.length > MOST_CARDS + 1 ? MOST_CARDS : passages.length;
  const more = passages.slice(shown);
  return element(
    "section",
    { class: "sources", "aria-label": title },
    element("h3", { class: "sources-title" }, title),
    cards(passages.slice(0, shown), open),
    more.length > 0 ? fold("more-sources", t("sources.more", { count: number(more.length) }), cards(more, open)) : null,
    omitted,
  );
}

function leftOut(used, total, passages, open) {
  const text = t("sources.leftOut", { used: number(used), total: number(total) });
  return fold("left-out", text, element("p", { class: "left-out-why" }, t("sources.leftOutWhy"), " ", helpMark("passages", t("context.passages"))), cards(passages, open));
}

function fold(name, text, ...children) {
  return element("details", { class: `fold ${name}` }, element("summary", {}, icon("chevron"), text), children);
}

function cards(passages, open) {
  return element("ol", { class: "source-cards" }, passages.map((passage) => element("li", {}, card(passage, open))));
}

function card(passage, open) {
  const summary = element(
    "summary",
    {},
    element("span", { class: "source-n", "aria-hidden": "true" }, String(passage.n)),
    element(
      "span",
      { class: "source-names" },
      element("span", { class: "source-title" }, passage.title),
      element("span", { class: "source-locator" }, locatorText(passage)),
    ),
    icon("chevron"),
  );
  const button = element("button", { class: "link-button", type: "button" }, icon("book"), t("source.open"));
  button.addEventListener("click", () => open(passage));
  const body = element("div", { class: "source-body" }, button);
  const node = element("details", { class: "source", data: { n: passage.n } }, summary, body);
  // Most cards are never opened: their text is made when they are, also for paper (printing.js).
  const show = () => {
    if (!node.open) return;
    showText(body, renderMarked(passage));
    node.removeEventListener("toggle", show);
  };
  node.addEventListener("toggle", show);
  return node;
}

/** Whether what supports the answer lies below the cut, or where it fades. */
function hidesMark(text) {
  const marks = [...text.querySelectorAll("mark")];
  const end = text.getBoundingClientRect().bottom - text.clientHeight / 4;
  return marks.some((mark) => mark.getBoundingClientRect().bottom > end);
}

/** A long text is cut, with a button that shows all of it; not where that hides what it is shown for. */
function showText(body, content) {
  const text = element("div", { class: "source-text prose", dir: "auto", tabindex: "-1" }, content);
  const all = element("button", { class: "quiet show-all", type: "button", hidden: true }, t("source.all"));
  // Formulas and the width of the window change how much there is.
  const sizes = new ResizeObserver(() => {
    const isCut = text.scrollHeight > text.clientHeight + 1;
    text.classList.toggle("is-cut", isCut);
    all.hidden = !isCut;
    if (isCut && hidesMark(text)) showAll();
  });
  const showAll = () => {
    sizes.disconnect();
    text.classList.remove("is-cut");
    text.classList.add("is-whole");
    all.remove();
  };
  sizes.observe(content);
  all.addEventListener("click", () => {
    showAll();
    text.focus({ preventScroll: true });
  });
  body.prepend(text, all);
}
