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
  /** The key of what `#words` says; "" for nothing. */
  #said = "";

  constructor(feedback, send) {
    this.#send = send;
    this.#value = feedback?.value ?? null;
    fill(this.buttons, this.#thumb("up"), this.#thumb("down"));
    this.#render();
  }

  /** The language has changed: what is chosen and what is being written stay. */
  refresh() {
    this.buttons.setAttribute("aria-label", t("feedback.label"));
    for (const thumb of this.buttons.children) nameThumb(thumb);
    const form = this.note.querySelector("form");
    if (form !== null) nameForm(form);
    this.#words.textContent = this.#said && t(this.#said);
  }

  #thumb(value) {
    const node = element("button", { class: "quiet thumb", type: "button", data: { value, action: value } }, icon(`thumb-${value}`));
    nameThumb(node);
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
    this.#say(isStored ? (value === "none" ? "" : "feedback.thanks") : "feedback.failed");
    return isStored ? "stored" : "failed";
  }

  #say(key) {
    const isAlone = this.note.children.length === 1;
    this.#said = key;
    // Before it is filled: a region that is hidden announces nothing.
    this.note.hidden = key === "" && isAlone;
    this.#words.textContent = key && t(key);
  }

  #askWhy() {
    const text = element("textarea", { rows: 2, maxlength: LONGEST_NOTE, dir: "auto" });
    const submit = element("button", { class: "action", type: "submit" });
    const form = element("form", { class: "feedback-form" }, text, submit);
    nameForm(form);
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

function nameThumb(thumb) {
  const name = t(`feedback.${thumb.dataset.value}`);
  thumb.title = name;
  thumb.setAttribute("aria-label", name);
}

function nameForm(form) {
  const text = form.querySelector("textarea");
  text.placeholder = t("feedback.note");
  text.setAttribute("aria-label", text.placeholder);
  form.querySelector("button").textContent = t("feedback.send");
}
