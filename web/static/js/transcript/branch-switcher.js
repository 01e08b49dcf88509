// ‹ 2/3 ›: which version of a question or an answer is shown, and the way to the others.

import { element, fill, icon } from "../elements.js";
import { number, t } from "../i18n.js";

/** `root` is hidden where there is one version only. */
export class BranchSwitcher {
  #kind;
  #choose;
  #versions = null;
  root = element("div", { class: "versions", role: "group", hidden: true });

  /** `kind`: "question" or "answer"; `choose(direction)` is called with -1 or 1. */
  constructor(kind, choose) {
    this.#kind = kind;
    this.#choose = choose;
  }

  /** Shows {index, total}. */
  update({ index, total }) {
    const known = this.#versions;
    if (known !== null && known.index === index && known.total === total) return;
    this.#versions = { index, total };
    this.refresh();
  }

  /** The same in the language of now. */
  refresh() {
    if (this.#versions === null) return;
    const { index, total } = this.#versions;
    const focused = this.root.contains(document.activeElement) ? document.activeElement.dataset.direction : null;
    this.root.hidden = total < 2;
    this.root.setAttribute("aria-label", t(`branch.${this.#kind}`));
    fill(
      this.root,
      this.#button(-1, "branch.previous", index === 0),
      element("span", { class: "versions-place" }, `${number(index + 1)}/${number(total)}`),
      this.#button(1, "branch.next", index === total - 1),
    );
    if (focused !== null) this.focus(Number(focused));
  }

  /** Where it stands, in words. */
  get words() {
    const { index, total } = this.#versions;
    return t("branch.place", { index: number(index + 1), total: number(total) });
  }

  /** Puts the focus on the button of a direction, or on the other one where that is the end. */
  focus(direction) {
    const button = this.root.querySelector(`[data-direction="${direction}"]`);
    const target = button.disabled ? this.root.querySelector("button:not(:disabled)") : button;
    target?.focus({ preventScroll: true });
  }

  #button(direction, label, isEnd) {
    const button = element(
      "button",
      { class: "version-button", type: "button", "aria-label": t(label), title: t(label), disabled: isEnd, data: { direction } },
      icon("chevron"),
    );
    button.addEventListener("click", () => this.#choose(direction));
    return button;
  }
}
