// Where a conversation opens with a question that is being edited out of view: a way to it.

import { element, icon } from "../elements.js";
import { t } from "../i18n.js";

export class EditWaits {
  #button = element(
    "button",
    { class: "newest edit-waits", type: "button", hidden: true },
    icon("pencil"),
    element("span", { "data-t": "edit.waits" }, t("edit.waits")),
  );
  #observer;
  #go = null;

  /** The button stands before `next`; `area` is what scrolls. */
  constructor(next, area) {
    next.before(this.#button);
    this.#button.addEventListener("click", () => {
      const go = this.#go;
      this.forget();
      go();
    });
    this.#observer = new IntersectionObserver(
      (entries) => {
        // Once it is seen, its reader knows of it.
        if (entries.at(-1).isIntersecting) this.forget();
        else this.#button.hidden = this.#go === null;
      },
      { root: area },
    );
  }

  /** `go()` leads to the question, whose element is `root`; null where it is not on the page yet. */
  offer(root, go) {
    this.forget();
    this.#go = go;
    if (root === null) this.#button.hidden = false;
    else this.watch(root);
  }

  /** The question has come on the page. */
  watch(root) {
    this.#observer.observe(root);
  }

  forget() {
    this.#observer.disconnect();
    this.#button.hidden = true;
    this.#go = null;
  }
}
