// What a seam says when it is pressed: that the answer was continued there, and for the last one
// how to take the continuation back.

import { element, fill } from "../elements.js";
import { t } from "../i18n.js";
import { actionButtons } from "./actions.js";

const GAP_PX = 6;
const EDGE_PX = 8;

export class SeamNote {
  #prose;
  #answer;
  #actions;
  #host;
  #box = null;

  /** Listens to the seams in `prose`; the note opens inside `host`. */
  constructor(prose, host, answer, actions) {
    this.#prose = prose;
    this.#answer = answer;
    this.#actions = actions;
    this.#host = host;
    prose.addEventListener("click", ({ target }) => {
      const seam = target.closest(".seam");
      if (seam !== null) this.#open(seam);
    });
  }

  close() {
    if (this.#box?.matches(":popover-open")) this.#box.hidePopover();
  }

  #open(seam) {
    const answer = this.#answer;
    const seams = [...this.#prose.querySelectorAll(".seam")];
    // A last part without a word has no seam to be seen.
    const isLast = seams.at(-1) === seam && seams.length === answer.seams.length;
    const words = element("p", {}, t("seam.title"));
    let way = element("p", { class: "seam-hint" }, t("seam.onlyLast"));
    if (answer.isRunning || (isLast && !answer.canUndo)) way = null;
    else if (isLast) {
      [way] = actionButtons(["undo"], answer, this.#actions, () => (words.textContent = t("action.busy")));
      way.disabled = answer.isUndoing;
    }
    if (this.#box === null) {
      this.#box = element("div", { class: "seam-note", popover: "auto" });
      // The browser closes it after all who hear of the key: with Shift, that leads on to the question.
      this.#box.addEventListener("keydown", ({ key, shiftKey }) => {
        if (key === "Escape" && shiftKey) this.close();
      });
      this.#host.append(this.#box);
    }
    fill(this.#box, words, way);
    this.#box.showPopover();
    this.#follow(seam);
    if (isLast) way?.focus({ preventScroll: true });
  }

  /** Stays at its seam while the text moves, and goes when the seam does. */
  #follow(seam) {
    const place = () => {
      const { top, bottom } = seam.getBoundingClientRect();
      if (!seam.isConnected || bottom < 0 || top > innerHeight) this.close();
      else this.#place(seam.getBoundingClientRect());
    };
    place();
    const options = { capture: true, passive: true };
    document.addEventListener("scroll", place, options);
    const stop = ({ newState }) => {
      if (newState !== "closed") return;
      document.removeEventListener("scroll", place, options);
      this.#box.removeEventListener("toggle", stop);
    };
    this.#box.addEventListener("toggle", stop);
  }

  /** Below the seam, or above where there is no room. */
  #place(seam) {
    const { offsetWidth: width, offsetHeight: height } = this.#box;
    const left = Math.min(Math.max(EDGE_PX, seam.left - width / 2), innerWidth - width - EDGE_PX);
    const below = seam.bottom + GAP_PX;
    const top = below + height + EDGE_PX <= innerHeight ? below : seam.top - GAP_PX - height;
    Object.assign(this.#box.style, { left: `${Math.max(EDGE_PX, left)}px`, top: `${Math.max(EDGE_PX, top)}px` });
  }
}
