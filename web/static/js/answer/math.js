// LaTeX in Markdown: $…$, $$…$$, \(…\) and \[…\]. KaTeX is loaded when the first formula appears.
// It builds its elements itself and sets nearly all styles through the CSSOM, which the page's
// policy allows; the few that it would write as style attributes (the arrow of \vec, the frame of
// \fcolorbox) are moved to the CSSOM here.

import { SEAM } from "./seams.js";

const FOLDER = new URL("../../vendor/katex-0.19.1/", import.meta.url);
const LIMITS = { maxSize: 20, maxExpand: 200 };
const LONGEST_FORMULA = 4000;
const KEPT_FORMULAS = 400;

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
    const tex = md.utils.escapeHtml(content.replaceAll(SEAM, ""));
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
  const end = closing(src, start, form.close);
  if (end < 0 || end - start > LONGEST_FORMULA) return false;
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

function closing(src, from, close) {
  for (let end = src.indexOf(close, from); end >= 0; end = src.indexOf(close, end + 1)) {
    if (close !== "$" || src[end - 1] !== "\\") return end;
  }
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
  while (!lines.at(-1).trimEnd().endsWith(form.close)) {
    line += 1;
    isOpen = line >= endLine;
    if (isOpen) break;
    if (lineAt(line).trim() === "") return false;
    lines.push(lineAt(line));
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

/** Sets the formulas below `root`; until KaTeX is there they stay as their source. */
export function typeset(root) {
  const nodes = root.querySelectorAll(".math:not(.math-set)");
  if (nodes.length === 0) return;
  if (katex === null) {
    const waiting = [...nodes];
    load().then(
      () => waiting.forEach(setFormula),
      () => {
        // The source stays readable; the next formula tries again.
        loading = null;
      },
    );
    return;
  }
  nodes.forEach(setFormula);
}

function setFormula(node) {
  const { tex, display } = node.dataset;
  const key = `${display} ${tex}`;
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

function load() {
  loading ??= Promise.all([
    import(new URL("katex.min.js", FOLDER)),
    new Promise((resolve, reject) => {
      const link = document.createElement("link");
      link.rel = "stylesheet";
      link.href = new URL("katex.min.css", FOLDER);
      link.onload = resolve;
      link.onerror = reject;
      document.head.append(link);
    }),
  ]).then(() => {
    ({ katex } = globalThis);
  });
  return loading;
}
