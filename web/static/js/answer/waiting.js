// What an answer shows while it is on its way, so that it never looks frozen: the head until there
// is text, then a pulse at the end of it, with words as soon as the text stands still.

import { element } from "../elements.js";
import { t } from "../i18n.js";
import { Head } from "./head.js";
import { elapsed } from "./spans.js";

/** A text that has stood still for this long looks dead. */
const STALLED_MS = 2500;
/** A connection that is lost for less is back before anybody has read that it was lost. */
const PATIENCE_MS = 1200;
const TICK_MS = 500;

export class Waiting {
  #answer;
  #connection;
  #head;
  #words = element("span", { class: "still-words" });
  #pulse = element("span", { class: "pulse", "aria-hidden": "true" });
  #line = element("p", { class: "still" }, this.#pulse, this.#words);
  #madeMs = performance.now();
  #lostMs = null;
  #timer = null;
  #onTick;
  #listener = () => this.update();
  root = element("div", { class: "waiting" });

  /**
   * `answer` runs. `connection`: tells "state" and has `isOpen` and `lostAt`, or null.
   * `onTick(nowMs)` (performance.now) is called at each update: every 500 ms while the page is
   * visible, and at what happens between.
   */
  constructor(answer, connection, onTick) {
    this.#answer = answer;
    this.#connection = connection ?? null;
    this.#onTick = onTick;
    this.#head = new Head(answer);
    this.root.append(this.#head.root, this.#line);
    document.addEventListener("visibilitychange", this.#listener);
    this.#connection?.addEventListener("state", this.#listener);
  }

  /** Shows how things stand at `nowMs` (performance.now). */
  update(nowMs = performance.now()) {
    const answer = this.#answer;
    this.#keepTime();
    this.#watchConnection(nowMs);
    const isGrowing = answer.phase === "writing" || answer.phase === "thinking";
    this.#head.root.hidden = isGrowing;
    this.#line.hidden = !isGrowing;
    if (isGrowing) this.#showLine(nowMs);
    else this.#head.update(nowMs - (answer.startedAt ?? this.#madeMs), this.#trouble(nowMs));
    this.#onTick(nowMs);
  }

  /** The language has changed. */
  refresh() {
    this.#head.forget();
    this.update();
  }

  /** The answer has ended, or is no longer shown. */
  dispose() {
    this.root.remove();
    clearInterval(this.#timer);
    this.#timer = null;
    document.removeEventListener("visibilitychange", this.#listener);
    this.#connection?.removeEventListener("state", this.#listener);
  }

  /** The clock runs only for who sees it. */
  #keepTime() {
    if (document.visibilityState === "visible") this.#timer ??= setInterval(this.#listener, TICK_MS);
    else {
      clearInterval(this.#timer);
      this.#timer = null;
    }
  }

  #watchConnection(nowMs) {
    if (this.#connection === null || this.#connection.isOpen) this.#lostMs = null;
    else this.#lostMs ??= this.#connection.lostAt ?? nowMs;
  }

  /** What keeps the answer from being seen, or null. */
  #trouble(nowMs) {
    const answer = this.#answer;
    if (this.#lostMs === null || nowMs - this.#lostMs < PATIENCE_MS) return null;
    return t(answer.phase === "sending" ? "waiting.unsent" : "waiting.offline");
  }

  #showLine(nowMs) {
    const answer = this.#answer;
    const stillMs = nowMs - (answer.lastDeltaAt ?? nowMs);
    let words = answer.isStopping ? t("phase.stopping") : this.#trouble(nowMs);
    if (words === null && stillMs >= STALLED_MS) words = t("waiting.still", { time: elapsed(stillMs) });
    words ??= "";
    if (this.#words.textContent !== words) this.#words.textContent = words;
    // Thinking has its own pulse, above.
    this.#line.hidden = answer.phase === "thinking" && words === "";
  }
}
