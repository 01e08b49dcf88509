// The panel beside the transcript: a material around the passage that was used, and in it the
// sentences that support the answer.

import { element, fill, icon } from "../elements.js";
import { isWaiting, setWaiting } from "../focus.js";
import { t } from "../i18n.js";
import { markTexts } from "./marking.js";
import { MaterialText } from "./material-text.js";
import { markedTexts, renderMaterial, renderPassage } from "./material-view.js";
import { locatorText } from "./places.js";

/** A material that comes sooner than this is shown without the passage alone before it. */
const PATIENCE_MS = 150;

export class SourcePanel {
  #dialog;
  #title;
  #locator;
  #links;
  #body;
  #material = null;
  #passage = null;
  #opener = null;
  #wide = window.matchMedia("(min-width: 1100px)");
  /** The browser is on its way from the panel's entry of the history to the one before. */
  #isLeaving = false;

  constructor(dialog) {
    this.#dialog = dialog;
    this.#title = dialog.querySelector(".panel-title");
    this.#locator = dialog.querySelector(".panel-locator");
    this.#body = dialog.querySelector(".panel-body");
    this.#links = element("p", { class: "panel-links" });
    this.#locator.after(this.#links);
    dialog.querySelector(".panel-close").addEventListener("click", () => this.close());
    dialog.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      if (event.shiftKey) {
        // It leads on to the question: the focus is not to come back from there.
        this.#opener = null;
        this.close();
        return;
      }
      event.preventDefault();
      event.stopPropagation();
      this.close();
    });
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) this.close();
    });
    dialog.addEventListener("close", () => this.#closed());
    window.addEventListener("popstate", () => this.#moved());
    // Nothing is open after a reload.
    if (history.state?.panel) this.#leave();
  }

  get isOpen() {
    return this.#dialog.open;
  }

  /** Shows the material around a passage; where there is none, or until it is there, the passage. */
  async open(passage) {
    this.#opener = new Opener(document.activeElement);
    this.#passage = passage;
    this.#material = null;
    this.#title.textContent = passage.title;
    fill(this.#links);
    fill(this.#body);
    this.refresh();
    if (!this.#dialog.open) {
      if (this.#wide.matches) this.#dialog.show();
      else this.#dialog.showModal();
    }
    document.documentElement.classList.add("has-panel");
    if (!history.state?.panel) this.#enter();
    this.#dialog.querySelector(".panel-close").focus();
    if (!passage.material) {
      this.#showPassage();
      return;
    }
    // It may have been closed meanwhile, or show another one.
    const timer = setTimeout(() => this.#passage === passage && this.#showPassage(), PATIENCE_MS);
    try {
      await this.#showMaterial(passage, () => clearTimeout(timer));
    } catch {
      clearTimeout(timer);
      if (this.#passage !== passage) return;
      this.#showPassage(t("source.unavailable"));
    }
  }

  close() {
    this.#dialog.close();
  }

  /** The language has changed. */
  refresh() {
    if (this.#passage === null) return;
    this.#locator.textContent = locatorText(this.#passage);
    this.#showLinks();
  }

  /** Back closes the panel: it has an entry of its own, with the address of its conversation. */
  #enter() {
    history.pushState({ panel: true }, "");
  }

  #leave() {
    this.#isLeaving = true;
    history.back();
  }

  #moved() {
    const isEntry = Boolean(history.state?.panel);
    if (this.#isLeaving) {
      this.#isLeaving = false;
      // It was opened again meanwhile.
      if (this.isOpen && !isEntry) this.#enter();
    } else if (!isEntry) this.close();
    // Forward: what it showed is no longer there.
    else if (!this.isOpen) this.#leave();
  }

  #closed() {
    if (this.isOpen) return;
    if (history.state?.panel && !this.#isLeaving) this.#leave();
    document.documentElement.classList.remove("has-panel");
    this.#passage = null;
    this.#opener?.focus();
    this.#opener = null;
  }

  #showPassage(note = null) {
    const { text } = this.#passage;
    fill(this.#body, text ? renderPassage(text) : null, note && element("p", { class: "panel-note" }, note));
    this.#showMarks();
  }

  async #showMaterial(passage, ready) {
    const isWanted = () => this.#passage === passage;
    const material = await MaterialText.around(passage);
    const nodes = isWanted() ? await renderMaterial(material.text, material.format, material.range, isWanted) : null;
    ready();
    if (nodes === null || !isWanted()) return;
    this.#material = material;
    this.#title.textContent = material.title;
    if (material.range === null && passage.text) {
      // What was used comes first: the material has another text now.
      nodes.unshift(renderPassage(passage.text), element("p", { class: "panel-note" }, t("source.changed")));
    }
    fill(this.#body, this.#more("earlier"), nodes, this.#more("later"));
    this.#showLinks();
    this.#showMarks();
  }

  #showLinks() {
    const address = `/api/materials/${encodeURIComponent(this.#passage.material)}/original`;
    fill(this.#links, this.#material?.hasOriginal ? element("a", { class: "link-button", href: address, download: true }, icon("external"), t("source.original")) : null);
  }

  #showMarks() {
    const part = this.#body.querySelector(".passage-mark");
    const marks = [...this.#body.querySelectorAll(".passage-mark")].map((node) => markTexts(node, markedTexts(this.#passage)));
    part?.scrollIntoView({ block: "start" });
    marks.find(Boolean)?.scrollIntoView({ block: "nearest" });
  }

  /** A button that adds the part before or behind, or null where there is none. */
  #more(side) {
    const has = side === "earlier" ? this.#material.hasEarlier : this.#material.hasLater;
    if (!has) return null;
    const button = element("button", { class: `part-button part-${side}`, type: "button" }, t(`source.${side}`));
    button.addEventListener("click", () => this.#add(side, button));
    return button;
  }

  async #add(side, button) {
    const material = this.#material;
    const isWanted = () => this.#material === material && this.#dialog.open;
    if (isWaiting(button)) return;
    setWaiting(button, true);
    let nodes;
    try {
      nodes = await renderMaterial(side === "earlier" ? await material.earlier() : await material.later(), material.format, null, isWanted);
    } catch {
      setWaiting(button, false);
      fill(button, t("source.unavailable"));
      return;
    }
    if (nodes === null || !isWanted()) return;
    if (side === "earlier") this.#prepend(button, nodes);
    else button.replaceWith(...nodes, ...[this.#more("later")].filter(Boolean));
    // The button is gone, and the focus with it.
    const next = this.#body.querySelector(`.part-${side}`) ?? this.#body;
    next.focus({ preventScroll: true });
  }

  /** What was in view stays where it is. */
  #prepend(button, nodes) {
    const first = button.nextElementSibling;
    const before = first.getBoundingClientRect().top;
    button.replaceWith(...[this.#more("earlier")].filter(Boolean), ...nodes);
    this.#body.scrollTop += first.getBoundingClientRect().top - before;
  }
}

/** Where the focus was; a chip that was made again meanwhile is found by its place. */
class Opener {
  #node;
  #answer;
  #index = -1;

  constructor(node) {
    this.#node = node;
    this.#answer = node?.closest?.(".answer") ?? null;
    if (node?.matches?.(".cite")) this.#index = this.#chips.indexOf(node);
  }

  get #chips() {
    return [...(this.#answer?.querySelectorAll(".cite") ?? [])];
  }

  focus() {
    const node = this.#node?.isConnected ? this.#node : this.#chips[this.#index];
    node?.focus?.({ preventScroll: true });
  }
}
