// Where a question is written, and its draft kept.

import { messageBytes } from "../chat/connection.js";
import { number, t } from "../i18n.js";
import { EnterKey } from "./enter-key.js";
import { draftOf, keepDraft } from "./drafts.js";

const TALLEST_PX = 220;
const CERTAINLY_TALL_CHARS = 10_000;
/** Room for what is sent around the text. */
const ENVELOPE_BYTES = 512;
const KB = 1024;

/** Events: "ask" (detail: the text), "stop", "change" (the text is another one). */
export class Composer extends EventTarget {
  #form;
  #input;
  #send;
  #stop;
  #note;
  #connection;
  /** Bytes of the text that was too long to be sent, or null. */
  #excess = null;
  #isRunning = false;
  /** Whose draft this is: a conversation, or null for a new one. */
  #conversation = null;
  #enter;

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
    this.#input.addEventListener("input", () => this.#changed());
    this.#enter = new EnterKey(this.#input, () => this.#submit());
    // A click anywhere in the box means the text.
    form.addEventListener("click", (event) => {
      if (event.target === form) this.#input.focus();
    });
    // Larger letters, or a box less wide, make other lines of the same text. Not within the
    // observer's turn: it would be told of its own change.
    new ResizeObserver(() => requestAnimationFrame(() => this.#fit())).observe(form);
    this.refresh();
  }

  get text() {
    return this.#input.value;
  }

  set text(value) {
    this.#input.value = value;
    this.#changed();
  }

  /** Whether a question could be written here now, and none is. */
  get isIdle() {
    return document.activeElement === this.#input && this.#input.value === "";
  }

  /** Whether one is being written. */
  get isWriting() {
    return document.activeElement === this.#input && this.#input.value !== "";
  }

  /** Each conversation has its own draft, which outlives a reload. */
  useDraft(conversation) {
    this.#conversation = conversation;
    this.text = draftOf(conversation);
  }

  /** The new conversation has got its name: what is written meanwhile belongs there. */
  moveDraft(conversation) {
    const written = this.text;
    keepDraft(this.#conversation, "");
    this.#conversation = conversation;
    this.text = written;
  }

  /** Its conversation is no more. */
  dropDraft() {
    this.text = "";
  }

  /** While an answer runs, the send button is the stop button; the next question can be written. */
  set isRunning(value) {
    const hadFocus = document.activeElement === this.#send || document.activeElement === this.#stop;
    this.#isRunning = value;
    this.#stop.hidden = !value;
    this.#send.hidden = value;
    this.#changed();
    if (hadFocus) (value ? this.#stop : this.#input).focus();
  }

  /** Not disabled, which would take the focus from whoever has pressed it by a key. */
  set isStopping(value) {
    this.#stop.setAttribute("aria-disabled", String(value));
  }

  /** Whether the server would not take a question so long. */
  isTooLong(text) {
    return messageBytes(text) > this.#maxBytes;
  }

  /** Where that would open a keyboard over the page, it is left to the reader. */
  focus() {
    if (!this.#enter.isTouch) this.focusNow();
  }

  focusNow() {
    this.#input.focus({ preventScroll: true });
  }

  /** Shows what it says again, in the language of now. */
  refresh() {
    this.#send.title = this.#enter.isTouch ? t("composer.send") : t("composer.sendKey");
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
    keepDraft(this.#conversation, value);
    if (this.#excess !== null) {
      this.#excess = null;
      this.refresh();
    }
    this.#send.disabled = !value.trim();
    this.#fit();
    this.#form.classList.toggle("has-text", value !== "");
    this.dispatchEvent(new Event("change"));
  }

  #fit() {
    const { style, value } = this.#input;
    style.height = "auto";
    // A long text is tall in any case; each measuring would lay out all of it.
    const height = value.length > CERTAINLY_TALL_CHARS ? Infinity : this.#input.scrollHeight;
    // The stylesheet allows less where the window is low.
    style.height = `${Math.min(height, TALLEST_PX)}px`;
  }
}
