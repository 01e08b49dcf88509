// Thumbs up or down, and after a thumb down a note to the teacher. Nothing is called received
// before the server has stored it.

import { element, fill, icon } from "../elements.js";
import { t } from "../i18n.js";

const LONGEST_NOTE = 2000;

/** `send(value, note)` gives "up", "down" or "none" to the server: a promise of whether it is stored. */
export class FeedbackButtons {
  #send;
  #value;
  /** The newest attempt: what an older one comes to is no news. */
  #attempt = 0;
  buttons = element("span", { class: "thumbs", role: "group", "aria-label": t("feedback.label") });
  note = element("div", { class: "feedback-note", hidden: true });
  #words = element("p", { role: "status" });

  constructor(feedback, send) {
    this.#send = send;
    this.#value = feedback?.value ?? null;
    fill(this.buttons, this.#thumb("up"), this.#thumb("down"));
    this.#render();
  }

  #thumb(value) {
    const name = t(`feedback.${value}`);
    const node = element(
      "button",
      { class: "quiet thumb", type: "button", title: name, "aria-label": name, data: { value, action: value } },
      icon(`thumb-${value}`),
    );
    node.addEventListener("click", () => this.#choose(value));
    return node;
  }

  #render() {
    for (const thumb of this.buttons.children) {
      thumb.setAttribute("aria-pressed", String(thumb.dataset.value === this.#value));
    }
  }

  async #choose(value) {
    const before = this.#value;
    this.#value = before === value ? null : value;
    this.#render();
    if (this.#value === "down") this.#askWhy();
    else fill(this.note, this.#words);
    const outcome = await this.#store(this.#value ?? "none", null);
    if (outcome !== "failed") return;
    this.#value = before;
    this.#render();
  }

  /** "stored", "failed", or "old" when another choice was made meanwhile. */
  async #store(value, note) {
    const attempt = (this.#attempt += 1);
    this.#say("");
    const isStored = await this.#send(value, note);
    if (attempt !== this.#attempt) return "old";
    this.#say(isStored ? (value === "none" ? "" : t("feedback.thanks")) : t("feedback.failed"));
    return isStored ? "stored" : "failed";
  }

  #say(text) {
    const isAlone = this.note.children.length === 1;
    // Before it is filled: a region that is hidden announces nothing.
    this.note.hidden = text === "" && isAlone;
    this.#words.textContent = text;
  }

  #askWhy() {
    const text = element("textarea", { rows: 2, maxlength: LONGEST_NOTE, dir: "auto", "aria-label": t("feedback.note"), placeholder: t("feedback.note") });
    const submit = element("button", { class: "action", type: "submit" }, t("feedback.send"));
    const form = element("form", { class: "feedback-form" }, text, submit);
    let isSending = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (isSending) return;
      isSending = true;
      const outcome = await this.#store("down", text.value.trim() || null);
      isSending = false;
      if (outcome !== "stored") return;
      const hadFocus = form.contains(document.activeElement);
      form.remove();
      if (hadFocus) this.buttons.querySelector("[data-value=down]").focus();
    });
    fill(this.note, form, this.#words);
    this.note.hidden = false;
    text.focus();
  }
}
