// Code in answers: a head with the language and a copy button; highlighted once its fence closes.

import { element, icon } from "../elements.js";
import { t } from "../i18n.js";
import { sanitizeHighlighted } from "./markdown.js";
import { SEAM, showSeams, withNamedControls } from "./seams.js";
import { slices } from "./slices.js";

/** What is longer stays plain: to highlight it would stop the page for more than a frame or two. */
const LONGEST_HIGHLIGHTED = 8_000;
const COPIED_MS = 1600;

let highlighter = null;

/** One block of code that may still grow. `root` is its element. */
export class CodeBlock {
  #language;
  #source;
  #code;
  #isClosed = false;

  /** `source` is the code as it was written, with marks of seams. */
  constructor({ language, source, isClosed }) {
    this.#language = language;
    this.#source = source;
    this.#code = element("code", {}, withNamedControls(source));
    this.root = element("div", { class: "code", data: { language } }, element("pre", { tabindex: "0" }, this.#code));
    this.root.prepend(head(language, () => this.#source.replaceAll(SEAM, "")));
    this.root.classList.add("code-dressed");
    if (source.includes(SEAM)) showSeams(this.#code);
    if (isClosed) this.#close();
  }

  /** Takes over what the block has become; false if it is another one. */
  become({ language, source, isClosed }) {
    const old = this.#source;
    if (this.#isClosed) return isClosed && source === old && language === this.#language;
    if (!source.startsWith(old) && !old.startsWith(source)) return false;
    if (language !== this.#language) {
      // Its first line is still being written.
      if (old !== "") return false;
      this.#name(language);
    }
    this.#source = source;
    if (source.length < old.length) {
      // What looked like code was the beginning of the line that closes it.
      this.#code.textContent = withNamedControls(source);
      if (source.includes(SEAM)) showSeams(this.#code);
    } else if (source !== old) this.#append(source.slice(old.length));
    if (isClosed) this.#close();
    return true;
  }

  #name(language) {
    this.#language = language;
    this.root.dataset.language = language;
    this.root.querySelector(".code-language").textContent = language || "text";
  }

  #append(added) {
    // Markdown gives an empty fence no text node.
    if (this.#code.lastChild?.nodeType === Node.TEXT_NODE) this.#code.lastChild.appendData(withNamedControls(added));
    else this.#code.append(withNamedControls(added));
    if (added.includes(SEAM)) showSeams(this.#code);
  }

  #close() {
    this.#isClosed = true;
    highlight(this.#code, this.#language, withNamedControls(this.#source));
  }
}

/** Dresses the code blocks below `root` that came as HTML and are not dressed yet. */
export function dressCode(root) {
  for (const block of root.querySelectorAll(".code:not(.code-dressed)")) {
    block.classList.add("code-dressed");
    const code = block.querySelector("code");
    const { language, closed } = block.dataset;
    const source = code.textContent;
    block.prepend(head(language, () => source));
    if (closed === "true") highlight(code, language, source);
  }
}

/** Fetches the highlighter before it is needed. */
export function prepareHighlighter() {
  highlighter ??= import("../../vendor/highlight.js-11.12.0/highlight.min.js").then(
    (module) => module.default,
    () => {
      // The code stays plain; the next block tries again.
      highlighter = null;
      return null;
    },
  );
  return highlighter;
}

async function highlight(code, language, text) {
  if (!language || text.length > LONGEST_HIGHLIGHTED) return;
  const hljs = await prepareHighlighter();
  if (!hljs?.getLanguage(language)) return;
  const paint = () => {
    if (isSelected(code)) {
      // The reader would lose what is selected.
      document.addEventListener("selectionchange", () => slices.add(paint), { once: true });
      return;
    }
    // A mark within a word would take its colour.
    const { value } = hljs.highlight(text.replaceAll(SEAM, ""), { language, ignoreIllegals: true });
    const painted = sanitizeHighlighted(value);
    if (text.includes(SEAM)) {
      putMarks(painted, text);
      showSeams(painted);
    }
    code.replaceChildren(painted);
  };
  slices.add(paint);
}

/** Puts the marks of seams in `text` into the nodes of the same text without them. */
function putMarks(root, text) {
  const offsets = text.split(SEAM).slice(0, -1).map(({ length }) => length);
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  let left = offsets.shift();
  while (left !== undefined && walker.nextNode()) {
    const node = walker.currentNode;
    let at = 0;
    while (left !== undefined && left <= node.length - at) {
      at += left;
      node.insertData(at, SEAM);
      at += SEAM.length;
      left = offsets.shift();
    }
    if (left !== undefined) left -= node.length - at;
  }
}

function isSelected(node) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(node, true);
}

function head(language, source) {
  return element("div", { class: "code-head" }, element("span", { class: "code-language" }, language || "text"), copyButton(source));
}

function copyButton(source) {
  const label = element("span", { "data-t": "code.copy" }, t("code.copy"));
  const button = element("button", { class: "code-copy", type: "button" }, icon("copy"), label);
  button.addEventListener("click", async () => {
    const key = (await copyText(source())) ? "code.copied" : "code.copyFailed";
    label.textContent = t(key);
    label.dataset.t = key;
    setTimeout(() => {
      label.textContent = t("code.copy");
      label.dataset.t = "code.copy";
    }, COPIED_MS);
  });
  return button;
}

/** Puts text on the clipboard; also where the page is plain http. Returns whether it worked. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { class: "visually-hidden", "aria-hidden": "true" });
    area.value = text;
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focused?.focus({ preventScroll: true });
    return copied;
  }
}
