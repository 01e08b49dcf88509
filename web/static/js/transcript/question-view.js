// One question in the transcript, which can be asked in other words where it stands.

import { cleaned } from "../answer/seams.js";
import { element, fill, icon } from "../elements.js";
import { t } from "../i18n.js";
import { EnterKey } from "../shell/enter-key.js";
import { BranchSwitcher } from "./branch-switcher.js";

/**
 * `actions`: edit(question, text), choose(message, direction), isBusy() (an answer runs, so that
 * nothing can be asked now), isTooLong(text), hold(question) (it is being edited), and, for what it
 * is being changed to, editOf(question) and keepEdit(question, text), "" where that is nothing.
 */
export class QuestionView {
  #question;
  #actions;
  #editor = null;
  #note;

  constructor(question, actions) {
    this.#question = question;
    this.#actions = actions;
    this.switcher = new BranchSwitcher("question", (direction) => actions.choose(question, direction));
    this.root = element("article", { class: "question", tabindex: "-1", data: { message: question.id ?? "" } });
    if (this.#kept === "") this.#showText();
    else this.#open(this.#kept);
  }

  /** The language has changed. What is being written stays. */
  refresh() {
    this.switcher.refresh();
    if (this.#editor === null) this.#showText();
    else this.#label();
  }

  /** Opens the editor, with the whole text in it. */
  edit() {
    if (this.#editor !== null) return;
    const { text } = this.#open(this.#question.text);
    this.#fit();
    text.focus();
    text.setSelectionRange(text.value.length, text.value.length);
  }

  /** What its reader had made of it when they left it, "" where that is nothing. */
  get #kept() {
    const text = this.#actions.editOf?.(this.#question) ?? "";
    return text === this.#question.text ? "" : text;
  }

  #open(written) {
    this.#actions.hold?.(this.#question);
    const text = element("textarea", { class: "question-input", dir: "auto", rows: 1 });
    text.value = written;
    this.#note = element("p", { class: "question-note", role: "status" });
    const cancel = element("button", { class: "action question-cancel", type: "button" });
    const send = element("button", { class: "action question-send", type: "submit" });
    const form = element("form", { class: "question-form" }, text, this.#note, element("div", { class: "question-buttons" }, cancel, send));
    this.#editor = { form, text, cancel, send };
    this.#label();
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    cancel.addEventListener("click", () => this.#close());
    new EnterKey(text, () => this.#submit(), (event) => {
      if (event.key !== "Escape") return;
      // Or it would stop the answer too.
      event.preventDefault();
      event.stopPropagation();
      this.#close();
    });
    text.addEventListener("input", () => {
      this.#note.textContent = "";
      this.#actions.keepEdit?.(this.#question, this.written);
      this.#fit();
    });
    // It may be filled before it is on the page, where its width is known. Not within the observer's
    // turn: it would be told of its own change.
    new ResizeObserver(() => requestAnimationFrame(() => this.#editor?.form === form && this.#grow())).observe(form);
    const asked = element("p", { class: "question-asked", dir: "auto" }, cleaned(this.#question.text));
    fill(this.root, this.#heading(), asked, form);
    return this.#editor;
  }

  /** Other words that are being written, "" where none are. */
  get written() {
    const text = this.#editor?.text.value ?? "";
    return text === this.#question.text ? "" : text;
  }

  #label() {
    const { text, cancel, send } = this.#editor;
    text.setAttribute("aria-label", t("edit.label"));
    cancel.textContent = t("edit.cancel");
    send.textContent = t("edit.send");
  }

  #submit() {
    const text = this.#editor.text.value.trim();
    if (text === "" || text === this.#question.text) {
      this.#close();
    } else if (this.#actions.isBusy()) {
      this.#note.textContent = t("action.busy");
    } else if (this.#actions.isTooLong?.(text)) {
      this.#note.textContent = t("error.message_too_long");
    } else {
      this.#editor = null;
      this.#actions.keepEdit?.(this.#question, "");
      this.#actions.edit(this.#question, text);
      this.#showText();
    }
  }

  #close() {
    this.#editor = null;
    this.#actions.keepEdit?.(this.#question, "");
    this.#showText();
    this.root.querySelector(".question-edit").focus({ preventScroll: true });
  }

  #showText() {
    const label = t("edit.open");
    const pencil = element("button", { class: "quiet question-edit", type: "button", "aria-label": label, title: label }, icon("pencil"));
    pencil.addEventListener("click", () => this.edit());
    fill(
      this.root,
      this.#heading(),
      element("p", { class: "question-text", dir: "auto" }, cleaned(this.#question.text)),
      element("div", { class: "question-foot" }, this.switcher.root, pencil),
    );
  }

  #heading() {
    return element("h2", { class: "visually-hidden" }, t("transcript.question"));
  }

  #fit() {
    this.#grow();
    this.#editor.form.scrollIntoView({ block: "nearest" });
  }

  #grow() {
    const { style } = this.#editor.text;
    style.height = "auto";
    style.height = `${this.#editor.text.scrollHeight + 2}px`;
  }
}
