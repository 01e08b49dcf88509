// Where a question is written, and its draft kept.

import { messageBytes } from "../chat/connection.js";
import { setWaiting } from "../focus.js";
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
  /** It was to be sent while an answer runs. */
  #isEarly = false;
  #isRunning = false;
  /** Whose draft this is: a conversation, null for a new one, undefined until that is known. */
  #conversation = undefined;
  /** Until it has its first draft, what is written can be neither sent nor kept. */
  #isReady = false;
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
    // After the key's own listeners, which know by then that nothing is composed any more.
    for (const type of ["compositionend", "blur"]) this.#input.addEventListener(type, () => this.#begin());
    // A click anywhere in the box means the text.
    form.addEventListener("click", (event) => {
      if (event.target === form) this.#input.focus();
    });
    // Larger letters, or a box less wide, make other lines of the same text. Not within the
    // observer's turn: it would be told of its own change.
    new ResizeObserver(() => requestAnimationFrame(() => this.#fit())).observe(form);
    this.refresh();
    // Something may have been written before this script came.
    this.#look();
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

  /**
   * Each conversation has its own draft, which outlives a reload. What was written before the first
   * one is shown stays, behind its draft.
   */
  useDraft(conversation) {
    this.#conversation = conversation;
    if (this.#isReady) this.text = draftOf(conversation);
    else this.#begin();
  }

  /** The new conversation has got its name: what is written meanwhile belongs there. */
  moveDraft(conversation) {
    const written = this.#isReady ? this.text : draftOf(this.#conversation);
    this.#forget(written);
    this.#conversation = conversation;
    if (written !== "") keepDraft(conversation, written);
  }

  /** Its conversation is no more. */
  dropDraft() {
    this.text = "";
  }

  /** While an answer runs, the send button is the stop button; the next question can be written. */
  set isRunning(value) {
    const hadFocus = document.activeElement === this.#send || document.activeElement === this.#stop;
    this.#isRunning = value;
    if (!value && this.#isEarly) this.#clearNote();
    this.#stop.hidden = !value;
    this.#send.hidden = value;
    this.#look();
    if (hadFocus) (value ? this.#stop : this.#input).focus();
  }

  set isStopping(value) {
    setWaiting(this.#stop, value);
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
    this.#note.hidden = !isTooLong && !this.#isEarly;
    this.#note.textContent = isTooLong ? this.#tooLong : this.#isEarly ? t("action.busy") : "";
    this.#input.setAttribute("aria-invalid", String(isTooLong));
  }

  get #tooLong() {
    const [size, limit] = [Math.ceil(this.#excess / KB), Math.floor(this.#maxBytes / KB)];
    return t("composer.tooLong", { size: number(size), limit: number(limit) });
  }

  get #maxBytes() {
    return this.#connection.maxMessageBytes - ENVELOPE_BYTES;
  }

  #submit() {
    const text = this.#input.value.trim();
    if (!text || !this.#isReady) return;
    if (this.#isRunning) {
      this.#isEarly = true;
      this.refresh();
      return;
    }
    const size = messageBytes(text);
    if (size > this.#maxBytes) {
      this.#excess = size;
      this.refresh();
      return;
    }
    this.#forget(this.text);
    // Emptied before anything else happens: a second submit finds no text.
    this.#input.value = "";
    this.#written();
    this.dispatchEvent(new CustomEvent("ask", { detail: text }));
  }

  /** Takes the first draft, as soon as it is known whose: not amid a composition, which would break. */
  #begin() {
    if (this.#isReady || this.#conversation === undefined || this.#enter.isComposing) return;
    this.#isReady = true;
    const draft = draftOf(this.#conversation);
    const early = this.text.trim();
    if (early === "") this.#input.value = draft;
    else if (draft.trim() !== "" && draft.trim() !== early) prepend(this.#input, `${draft}\n\n`);
    this.#changed();
    // Where the writing goes on, if it is more than the box shows.
    this.#input.scrollTop = this.#input.scrollHeight;
  }

  /** The draft `text` is none any more. Another one at its place is being written in another tab. */
  #forget(text) {
    if (draftOf(this.#conversation) === text) keepDraft(this.#conversation, "");
  }

  /** The text is another one, and a draft. */
  #changed() {
    if (this.#isReady) keepDraft(this.#conversation, this.text);
    this.#written();
  }

  #written() {
    this.#clearNote();
    this.#look();
    this.dispatchEvent(new Event("change"));
  }

  #clearNote() {
    if (this.#excess === null && !this.#isEarly) return;
    this.#excess = null;
    this.#isEarly = false;
    this.refresh();
  }

  #look() {
    const { value } = this.#input;
    this.#send.disabled = !this.#isReady || !value.trim();
    this.#fit();
    this.#form.classList.toggle("has-text", value !== "");
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

/** Whoever is writing goes on where they are. */
function prepend(input, text) {
  const { selectionStart, selectionEnd, selectionDirection } = input;
  input.value = text + input.value;
  input.setSelectionRange(text.length + selectionStart, text.length + selectionEnd, selectionDirection);
}
