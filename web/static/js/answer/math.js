// LaTeX in Markdown: $…$, $$…$$, \(…\) and \[…\]. KaTeX is loaded when the first formula appears.
// It builds its elements itself and sets nearly all styles through the CSSOM, which the page's
// policy allows; the few that it would write as style attributes (the arrow of \vec, the frame of
// \fcolorbox) are moved to the CSSOM here.

import { withoutCitationMarks } from "./citations.js";
import { element } from "../elements.js";
import { SEAM } from "./seams.js";
import { slices } from "./slices.js";

const FOLDER = new URL("../../vendor/katex-0.19.1/", import.meta.url);
const LIMITS = { maxSize: 20, maxExpand: 200 };
const LONGEST_FORMULA = 2000;
const KEPT_FORMULAS = 400;
/** Those that nearly every formula has: without them its place would be empty for a moment. */
const FONTS = ["Main-Regular", "Math-Italic"];

const formulas = new Map();
let katex = null;
let loading = null;

/** markdown-it plugin: formulas become <span class="math" data-tex>, before escapes are read. */
export function mathRules(md) {
  md.inline.ruler.before("escape", "math", inlineMath);
  md.block.ruler.before("fence", "math", blockMath, {
    alt: ["paragraph", "reference", "blockquote", "list"],
  });
  const render = (tokens, index) => {
    const { content, meta } = tokens[index];
    const tex = md.utils.escapeHtml(withoutMarks(content));
    const tag = meta.isBlock ? "div" : "span";
    const state = meta.isOpen ? " math-set math-source" : "";
    return `<${tag} class="math${state}" data-display="${meta.isDisplay}" data-tex="${tex}">${tex}</${tag}>`;
  };
  md.renderer.rules.math = render;
}

const INLINE = [
  { open: "$$", close: "$$", isDisplay: true },
  { open: "\\[", close: "\\]", isDisplay: true },
  { open: "\\(", close: "\\)", isDisplay: false },
  { open: "$", close: "$", isDisplay: false },
];

function inlineMath(state, silent) {
  const { src, pos } = state;
  const form = INLINE.find(({ open }) => src.startsWith(open, pos));
  if (form === undefined) return false;
  const start = pos + form.open.length;
  const end = closing(state, start, form.close);
  if (end < 0) return false;
  const tex = src.slice(start, end);
  if (!tex.trim()) return false;
  // A dollar with a space inside or a digit after is money.
  if (form.open === "$" && (/^\s|\s$/.test(tex) || /\d/.test(src[end + 1] ?? ""))) return false;
  if (!silent) {
    const token = state.push("math", "", 0);
    token.content = tex;
    token.meta = { isDisplay: form.isDisplay, isBlock: false };
  }
  state.pos = end + form.close.length;
  return true;
}

/**
 * The offset of the sign that closes a formula from `start`, -1 if there is none within the longest
 * formula. How far the text is known to hold none is kept, so that many opening signs without
 * an end cost no more than one.
 */
function closing(state, start, close) {
  const { src } = state;
  const end = start + LONGEST_FORMULA + close.length;
  state.mathSearched ??= new Map();
  const searched = state.mathSearched.get(close);
  let from = searched !== undefined && searched.from <= start ? Math.max(start, searched.to) : start;
  for (;;) {
    const found = src.slice(from, end).indexOf(close);
    if (found < 0) break;
    if (close !== "$" || src[from + found - 1] !== "\\") return from + found;
    from += found + 1;
  }
  // A sign that is cut by the end is looked for again.
  state.mathSearched.set(close, { from: start, to: Math.max(start, Math.min(end, src.length) - close.length + 1) });
  return -1;
}

function blockMath(state, startLine, endLine, silent) {
  const lineAt = (line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]);
  const first = lineAt(startLine);
  const form = INLINE.slice(0, 2).find(({ open }) => first.startsWith(open));
  if (form === undefined) return false;
  const lines = [first.slice(form.open.length)];
  let line = startLine;
  // A formula whose end has not come yet is shown as its source, not as Markdown.
  let isOpen = false;
  let length = first.length;
  while (!lines.at(-1).trimEnd().endsWith(form.close)) {
    line += 1;
    isOpen = line >= endLine;
    if (isOpen) break;
    if (lineAt(line).trim() === "") return false;
    lines.push(lineAt(line));
    length += lines.at(-1).length + 1;
    if (length > LONGEST_FORMULA) return false;
  }
  const whole = lines.join("\n").trimEnd();
  const body = isOpen ? whole : whole.slice(0, -form.close.length);
  if (!body.trim() || body.includes(form.close) || body.length > LONGEST_FORMULA) return false;
  if (silent) return true;
  const token = state.push("math", "", 0);
  token.block = true;
  token.content = body.trim();
  token.map = [startLine, Math.min(line + 1, endLine)];
  token.meta = { isDisplay: true, isBlock: true, isOpen };
  state.line = token.map[1];
  return true;
}

/** `text` without the private characters of citations and seams. */
export function withoutMarks(text) {
  return withoutCitationMarks(text).replaceAll(SEAM, "");
}

/** The element of a formula, which is set as soon as there is time for it. One that still `isOpen`
 * is shown as its source. */
export function formulaNode({ tex, isDisplay, isBlock, isOpen }) {
  const node = element(isBlock ? "div" : "span", { class: "math", data: { display: isDisplay, tex } }, tex);
  if (isOpen) node.classList.add("math-set", "math-source");
  else typesetAll([node]);
  return node;
}

/** Sets the formulas below `root`, each as soon as there is time; until then it is its source. */
export function typeset(root) {
  typesetAll([...root.querySelectorAll(".math:not(.math-set)")]);
}

function typesetAll(nodes) {
  const waiting = nodes.filter((node) => !setFromCache(node));
  if (waiting.length === 0) return;
  prepareMath().then((isReady) => {
    if (isReady) slices.add(() => setNext(waiting));
  });
}

/** Sets the first of `waiting`; whether there are more. */
function setNext(waiting) {
  const node = waiting.shift();
  setFormula(node);
  return waiting.length > 0;
}

function setFromCache(node) {
  if (!formulas.has(keyOf(node))) return false;
  setFormula(node);
  return true;
}

function keyOf({ dataset: { tex, display } }) {
  return `${display} ${tex}`;
}

function setFormula(node) {
  const { tex, display } = node.dataset;
  const key = keyOf(node);
  let set = formulas.get(key);
  if (set === undefined) {
    set = document.createElement("span");
    try {
      set.append(formula(tex, display === "true"));
    } catch {
      // A formula that is broken, or not complete yet: shown as it was written.
      set.className = "math-source";
      set.textContent = tex;
    }
    if (formulas.size >= KEPT_FORMULAS) formulas.delete(formulas.keys().next().value);
    formulas.set(key, set);
  }
  node.classList.add("math-set");
  node.replaceChildren(set.cloneNode(true));
}

function formula(tex, displayMode) {
  const tree = katex.__renderToDomTree(tex, { displayMode, trust: false, strict: "ignore", ...LIMITS });
  styleByObject(tree);
  return tree.toNode();
}

/** Lets every node of KaTeX's tree that has a style attribute set it as CSS text instead. */
function styleByObject(part) {
  const style = part.attributes?.style;
  if (style !== undefined) {
    delete part.attributes.style;
    const build = part.toNode;
    part.toNode = function toNode() {
      const node = build.call(this);
      node.style.cssText = style;
      return node;
    };
  }
  part.children?.forEach(styleByObject);
}

/** Fetches KaTeX before it is needed. A promise of whether it is there. */
export function prepareMath() {
  loading ??= Promise.all([
    import(new URL("katex.min.js", FOLDER)),
    linked({ rel: "stylesheet", href: new URL("katex.min.css", FOLDER) }),
    ...FONTS.map((name) =>
      linked({ rel: "preload", as: "font", type: "font/woff2", crossorigin: "", href: new URL(`fonts/KaTeX_${name}.woff2`, FOLDER) }),
    ),
  ]).then(
    () => {
      ({ katex } = globalThis);
      return true;
    },
    () => {
      // The source stays readable; the next formula tries again.
      loading = null;
      return false;
    },
  );
  return loading;
}

function linked(attributes) {
  return new Promise((resolve, reject) => {
    const link = element("link", attributes);
    link.onload = resolve;
    link.onerror = reject;
    document.head.append(link);
  });
}
