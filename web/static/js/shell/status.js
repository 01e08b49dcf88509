// The one polite live region: each phase once, never the text of an answer.

import { describeFinish, describePhase } from "../answer/finish.js";

/** A phase that is over sooner is not worth to interrupt a reader. */
const SETTLE_MS = 250;
/** How often the place in the queue is told again. */
const QUEUE_EVERY_MS = 15_000;

export class Status {
  #region;
  #answer = null;
  #said = "";
  /** What the words of `#said` are about, and when they were said (performance.now). */
  #topic = null;
  #saidMs = 0;
  /** The phase that is said as soon as it has lasted, or was the last to be. */
  #coming = null;
  #timer = null;
  #listener = ({ detail }) => detail !== "text" && this.#update();

  constructor(region) {
    this.#region = region;
  }

  /** Announces the phases of `answer` from now on (null: of none). */
  watch(answer) {
    if (answer === this.#answer) return;
    this.#stop();
    if (answer === null) return;
    this.#answer = answer;
    answer.addEventListener("change", this.#listener);
    // What was said of another answer may be said of this one in the same words.
    this.#said = "";
    this.#topic = null;
    this.#region.textContent = "";
    this.#update();
  }

  /**
   * Announces `text` now, unless it was the last thing said. With a `topic`, words about the same
   * one are said `everyMs` apart at least. Returns false for words that were left out for that.
   */
  say(text, { topic = null, everyMs = 0 } = {}) {
    if (text === this.#said) return true;
    const nowMs = performance.now();
    if (topic !== null && topic === this.#topic && nowMs - this.#saidMs < everyMs) return false;
    this.#said = text;
    this.#topic = topic;
    this.#saidMs = nowMs;
    this.#region.textContent = text;
    return true;
  }

  #update() {
    const answer = this.#answer;
    if (!answer.isRunning) {
      this.#stop();
      this.say(describeFinish(answer).text);
      return;
    }
    const words = describePhase(answer);
    if (words === this.#coming) return;
    this.#coming = words;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#sayPhase(words, answer.phase), SETTLE_MS);
  }

  #sayPhase(words, phase) {
    const isSaid = this.say(words, phase === "queued" ? { topic: phase, everyMs: QUEUE_EVERY_MS } : {});
    // The same place may be told again later, and be news then.
    if (!isSaid) this.#coming = null;
  }

  #stop() {
    clearTimeout(this.#timer);
    this.#coming = null;
    this.#answer?.removeEventListener("change", this.#listener);
    this.#answer = null;
  }
}
