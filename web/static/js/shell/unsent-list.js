// Conversations that only this page knows: their first question is on its way to the server, or was
// refused. Above the stored ones.

import { element, fill, icon } from "../elements.js";
import { keepFocus } from "../focus.js";
import { t } from "../i18n.js";
import { confirm } from "./dialogs.js";

/** Asks before a question that was refused is given up: whether it is to be. `text` is null for what
 * begins with a summary. */
export function confirmDiscard(text) {
  const subject = text ?? t("unsent.summary");
  return confirm({ title: t("unsent.discardTitle"), subject, text: t("unsent.discardText"), action: t("unsent.discardAction") });
}

/** Events: "open" and "discard" (detail: the key of the conversation). */
export class UnsentList extends EventTarget {
  #root;
  #items = [];
  #shown = "";

  constructor(root) {
    super();
    this.#root = root;
  }

  /** `items`: [{key, text: of the question, null: it is a summary, isRefused, isAlone}]: only one that
   * stands for nothing but itself can be discarded here. */
  show(items) {
    this.#items = items;
    this.refresh();
  }

  /** Shows them in the language of now. */
  refresh() {
    const state = JSON.stringify([document.documentElement.lang, this.#items]);
    if (state === this.#shown) return;
    this.#shown = state;
    const rows = this.#items.map((item) => this.#row(item));
    const list = rows.length > 0 && [element("h2", { class: "conversations-day" }, t("unsent.title")), element("ul", {}, rows)];
    const next = () => document.querySelector("a.new-conversation");
    keepFocus(this.#root, next, () => fill(this.#root, list));
    this.#root.hidden = rows.length === 0;
  }

  #row({ key, text, isRefused, isAlone }) {
    const name = text ?? t("unsent.summary");
    const state = t(isRefused ? "unsent.refused" : "unsent.waiting");
    const open = element(
      "button",
      { class: "conversation", type: "button", title: name, data: { action: `open ${key}` } },
      element("span", { class: "conversation-title", dir: "auto" }, name),
      element("span", { class: "conversation-about" }, isRefused && icon("alert"), state),
    );
    open.addEventListener("click", () => this.#tell("open", key));
    return element("li", { class: "conversation-row" }, open, isRefused && isAlone && this.#discardButton(key, name));
  }

  #discardButton(key, name) {
    const label = t("unsent.discard", { title: name });
    const button = element("button", { class: "icon-button conversation-more", type: "button", "aria-label": label, data: { action: `discard ${key}` } }, icon("close"));
    button.addEventListener("click", async () => {
      if (await confirmDiscard(name)) this.#tell("discard", key);
    });
    return button;
  }

  #tell(type, key) {
    this.dispatchEvent(new CustomEvent(type, { detail: key }));
  }
}
