// The panel beside the transcript: a whole material, the passage that was used, and in it the
// sentences that support the answer.

import { api } from "../api.js";
import { element, fill } from "../elements.js";
import { t } from "../i18n.js";
import { dressCode } from "../answer/code-blocks.js";
import { parseBlocks, renderBlocks } from "../answer/markdown.js";
import { markTexts } from "./marking.js";
import { typeset } from "../answer/math.js";
import { locatorText, withMarks } from "./places.js";
import { cleaned } from "../answer/seams.js";

const ENDS_CHARS = 48;

export class SourcePanel {
  #dialog;
  #title;
  #locator;
  #body;
  #opener = null;
  #wide = window.matchMedia("(min-width: 1100px)");

  constructor(dialog) {
    this.#dialog = dialog;
    this.#title = dialog.querySelector(".panel-title");
    this.#locator = dialog.querySelector(".panel-locator");
    this.#body = dialog.querySelector(".panel-body");
    dialog.querySelector(".panel-close").addEventListener("click", () => this.close());
    dialog.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.preventDefault();
        this.close();
      }
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) this.close();
    });
    dialog.addEventListener("close", () => this.#closed());
  }

  /** Shows the passage at once, and the material around it when it is there. */
  async open(passage) {
    this.#opener = document.activeElement;
    this.#title.textContent = passage.title;
    this.#locator.textContent = locatorText(passage);
    fill(this.#body, marked(renderBlocks(parseBlocks(cleaned(passage.text)))));
    this.#dress(passage);
    if (!this.#dialog.open) {
      if (this.#wide.matches) this.#dialog.show();
      else this.#dialog.showModal();
    }
    document.documentElement.classList.add("has-panel");
    this.#dialog.querySelector(".panel-close").focus();
    if (!passage.material) return;
    const shown = passage.id;
    this.#dialog.dataset.passage = shown;
    try {
      const material = await api.material(passage.material);
      if (this.#dialog.dataset.passage !== shown) return;
      this.#title.textContent = material.title;
      this.#showMaterial(cleaned(material.text), passage);
    } catch {
      this.#body.append(element("p", { class: "panel-note" }, t("source.unavailable")));
    }
  }

  close() {
    this.#dialog.close();
  }

  #closed() {
    document.documentElement.classList.remove("has-panel");
    this.#opener?.focus?.({ preventScroll: true });
  }

  #showMaterial(text, passage) {
    const range = locate(text, cleaned(passage.text));
    if (range === null) return;
    const blocks = parseBlocks(text);
    const nodes = [];
    let inside = [];
    blocks.forEach((block, index) => {
      const end = blocks[index + 1]?.start ?? text.length;
      const overlaps = block.start < range.end && end > range.start;
      if (overlaps) inside.push(block);
      if (!overlaps || index === blocks.length - 1) {
        if (inside.length > 0) nodes.push(marked(renderBlocks(inside)));
        inside = [];
        if (!overlaps) nodes.push(renderBlocks([block]));
      }
    });
    fill(this.#body, nodes);
    this.#dress(passage);
  }

  #dress(passage) {
    const part = this.#body.querySelector(".passage-mark");
    const sentence = part && markTexts(part, markedTexts(passage));
    dressCode(this.#body);
    typeset(this.#body);
    part?.scrollIntoView({ block: "start" });
    sentence?.scrollIntoView({ block: "nearest" });
  }
}

/** The sentences of a passage that support the answer. */
function markedTexts({ text, marks }) {
  const texts = [];
  withMarks(text, marks ?? [], (sentence) => {
    texts.push(sentence);
    return sentence;
  });
  return texts;
}

function marked(fragment) {
  return element("div", { class: "passage-mark" }, fragment);
}

/** Where `passage` stands in `text`, blanks aside (its lines may be joined); null if nowhere. */
function locate(text, passage) {
  const places = [];
  let bare = "";
  for (let at = 0; at < text.length; at += 1) {
    if (/\s/.test(text[at])) continue;
    const normal = text[at].normalize("NFKC");
    bare += normal;
    for (let n = 0; n < normal.length; n += 1) places.push(at);
  }
  const wanted = passage.normalize("NFKC").replace(/\s+/g, "");
  if (!wanted) return null;
  const whole = bare.indexOf(wanted);
  if (whole >= 0) return { start: places[whole], end: places[whole + wanted.length - 1] + 1 };
  const head = wanted.slice(0, ENDS_CHARS);
  const tail = wanted.slice(-ENDS_CHARS);
  const start = bare.indexOf(head);
  const last = bare.indexOf(tail, Math.max(0, start));
  if (start < 0 && last < 0) return null;
  const from = start >= 0 ? start : Math.max(0, last + tail.length - wanted.length);
  const to = last >= 0 ? last + tail.length : Math.min(bare.length, start + wanted.length);
  return { start: places[from], end: places[to - 1] + 1 };
}
