// Where a question is written. Enter sends, but never while an input method composes.

import { messageBytes } from "../chat/connection.js";
import { number, t } from "../i18n.js";
import { keep, kept } from "../preferences.js";

const DRAFT = "lectern.draft.";
const TALLEST_PX = 220;
const CERTAINLY_TALL_CHARS = 10_000;
/** Room for what is sent around the text. */
const ENVELOPE_BYTES = 512;
const KB = 1024;

/** Events: "ask" (detail: the text), "stop". */
export class Composer extends EventTarget {
  #form;
  #input;
  #send;
  #stop;
  #note;
  #connection;
  /** Bytes of the text that was too long to be sent, or null. */
  #excess = null;
  #isComposing = false;
  #isRunning = false;
  #draftKey = DRAFT;
  #touch = window.matchMedia("(pointer: coarse) and (hover: none)");

  constructor(form, note, connection) {
    super();
    this.#note = note;
    this.#connection = connection;
    this.#form = form;
    this.#input = form.querySelector("textarea");
    this.#send = form.querySelector(".send");
    this.#stop = form.querySelector(".stop");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#stop.addEventListener("click", () => this.dispatchEvent(new Event("stop")));
    this.#input.addEventListener("compositionstart", () => (this.#isComposing = true));
    this.#input.addEventListener("compositionend", () => (this.#isComposing = false));
    this.#input.addEventListener("input", () => this.#changed());
    this.#input.addEventListener("keydown", (event) => this.#key(event));
    // A click anywhere in the box means the text.
    form.addEventListener("click", (event) => {
      if (event.target === form) this.#input.focus();
    });
    this.#changed();
  }

  get text() {
    return this.#input.value;
  }

  set text(value) {
    this.#input.value = value;
    this.#changed();
  }

  /** Each conversation has its own draft, which outlives a reload. */
  useDraft(conversation) {
    this.#draftKey = DRAFT + (conversation ?? "new");
    this.#input.value = kept("localStorage", this.#draftKey) ?? "";
    this.#changed();
  }

  /** While an answer runs, the send button is the stop button; the next question can be written. */
  set isRunning(value) {
    const hadFocus = document.activeElement === this.#send || document.activeElement === this.#stop;
    this.#isRunning = value;
    this.#stop.hidden = !value;
    this.#stop.disabled = false;
    this.#send.hidden = value;
    this.#changed();
    if (hadFocus) (value ? this.#stop : this.#input).focus();
  }

  set isStopping(value) {
    this.#stop.disabled = value;
  }

  /** Where that would open a keyboard over the page, it is left to the reader. */
  focus() {
    if (!this.#touch.matches) this.#input.focus({ preventScroll: true });
  }

  /** Shows the note again, in the language of now. */
  refresh() {
    const isTooLong = this.#excess !== null;
    // Before it is filled: a region that is hidden announces nothing.
    this.#note.hidden = !isTooLong;
    this.#note.textContent = isTooLong
      ? t("composer.tooLong", {
          size: number(Math.ceil(this.#excess / KB)),
          limit: number(Math.floor(this.#maxBytes / KB)),
        })
      : "";
    this.#input.setAttribute("aria-invalid", String(isTooLong));
  }

  get #maxBytes() {
    return this.#connection.maxMessageBytes - ENVELOPE_BYTES;
  }

  #key(event) {
    if (event.key === "Escape" && this.#isRunning && !this.#composes(event)) {
      this.dispatchEvent(new Event("stop"));
      return;
    }
    if (event.key !== "Enter" || event.shiftKey || this.#composes(event)) return;
    // On a phone's keyboard Enter is the only way to break a line.
    if (this.#touch.matches && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    this.#submit();
  }

  /** keyCode 229 is what Safari gives the Enter that ends a composition, after its end event. */
  #composes(event) {
    return this.#isComposing || event.isComposing || event.key === "Process" || event.keyCode === 229;
  }

  #submit() {
    const text = this.#input.value.trim();
    if (!text || this.#isRunning) return;
    const size = messageBytes(text);
    if (size > this.#maxBytes) {
      this.#excess = size;
      this.refresh();
      return;
    }
    // Emptied before anything else happens: a second submit finds no text.
    this.text = "";
    this.dispatchEvent(new CustomEvent("ask", { detail: text }));
  }

  #changed() {
    const { value } = this.#input;
    keep("localStorage", this.#draftKey, value);
    if (this.#excess !== null) {
      this.#excess = null;
      this.refresh();
    }
    this.#send.disabled = !value.trim();
    this.#fit();
    this.#form.classList.toggle("has-text", value !== "");
    this.#send.title = this.#touch.matches ? t("composer.send") : t("composer.sendKey");
  }

  #fit() {
    const { style, value } = this.#input;
    style.height = "auto";
    // A long text is tall in any case; each measuring would lay out all of it.
    const height = value.length > CERTAINLY_TALL_CHARS ? Infinity : this.#input.scrollHeight;
    style.height = `${Math.min(height, TALLEST_PX)}px`;
    style.overflowY = height > TALLEST_PX ? "auto" : "hidden";
  }
}
