// The bar that tells of something that failed on the page, with a way to try again.

import { element, fill, icon } from "../elements.js";
import { t } from "../i18n.js";

export class ProblemBar {
  #root;

  constructor(root) {
    this.#root = root;
  }

  /** Shows `text` until the next conversation; `retry` (a function) gets a button. */
  show(text, retry = null) {
    const button = retry && element("button", { type: "button", class: "link-button" }, t("action.retry"));
    button?.addEventListener("click", () => {
      this.hide();
      retry();
    });
    // Before it is filled: a region that is hidden announces nothing.
    this.#root.hidden = false;
    fill(this.#root, icon("alert"), element("span", {}, text), button);
  }

  /** Shows an `error` of the protocol ({code, message}). */
  showError({ code, message }) {
    const key = `error.${code}`;
    const known = t(key);
    this.show(known === key ? message || t("error.internal") : known);
  }

  hide() {
    this.#root.hidden = true;
  }
}
