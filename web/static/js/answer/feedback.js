// Thumbs up or down, and after a thumb down a note to the teacher.

import { element, fill, icon } from "../elements.js";
import { t } from "../i18n.js";

const LONGEST_NOTE = 2000;

/** `send(value, note)` gives "up", "down" or "none" to the server, and returns whether it could. */
export class FeedbackButtons {
  #send;
  #value;
  buttons = element("span", { class: "thumbs", role: "group", "aria-label": t("feedback.label") });
  note = element("div", { class: "feedback-note", hidden: true });

  constructor(feedback, send) {
    this.#send = send;
    this.#value = feedback?.value ?? null;
    this.#render();
  }

  #render() {
    const thumb = (value) => {
      const node = element(
        "button",
        { class: "quiet thumb", type: "button", title: t(`feedback.${value}`), "aria-label": t(`feedback.${value}`), "aria-pressed": String(this.#value === value), data: { value } },
        icon(`thumb-${value}`),
      );
      node.addEventListener("click", () => this.#choose(value));
      return node;
    };
    const focused = this.buttons.contains(document.activeElement) ? document.activeElement.dataset.value : null;
    fill(this.buttons, thumb("up"), thumb("down"));
    if (focused) this.buttons.querySelector(`[data-value=${focused}]`).focus();
  }

  #choose(value) {
    this.#value = this.#value === value ? null : value;
    const isSent = this.#send(this.#value ?? "none", null);
    this.#render();
    this.note.hidden = this.#value === null && isSent;
    if (!isSent) fill(this.note, t("feedback.failed"));
    else if (this.#value === "down") this.#askWhy();
    else fill(this.note, t("feedback.thanks"));
  }

  #askWhy() {
    const text = element("textarea", { rows: 2, maxlength: LONGEST_NOTE, dir: "auto", "aria-label": t("feedback.note"), placeholder: t("feedback.note") });
    const form = element("form", { class: "feedback-form" }, text, element("button", { class: "action", type: "submit" }, t("feedback.send")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const isSent = this.#send("down", text.value.trim() || null);
      fill(this.note, element("p", { role: "status" }, t(isSent ? "feedback.thanks" : "feedback.failed")));
    });
    fill(this.note, form);
    text.focus();
  }
}
