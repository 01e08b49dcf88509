// Work that can wait, in slices that leave the page free: one slice a frame, after what the frame
// itself has to show, so that the layout of a frame too has only a slice's work to do.

import { afterRender } from "../frames.js";

/** How long a slice goes on taking up work. */
export const BUDGET_MS = 8;

/** Says when to stop. The first piece of work is always allowed: else nothing would ever end. */
export class Deadline {
  #end;
  #hasBegun = false;

  constructor(budgetMs = BUDGET_MS) {
    this.#end = performance.now() + budgetMs;
  }

  /** Whether there is time for one more piece of work. */
  take() {
    if (this.#hasBegun && performance.now() >= this.#end) return false;
    this.#hasBegun = true;
    return true;
  }
}

export class Slices {
  #budgetMs;
  #jobs = [];
  #isDue = false;
  #channel = new MessageChannel();
  #waiting = [];

  /** `budgetMs`: how long a slice may go on taking up work. */
  constructor({ budgetMs = BUDGET_MS } = {}) {
    this.#budgetMs = budgetMs;
    this.#channel.port1.onmessage = () => this.#run();
    document.addEventListener("visibilitychange", () => this.#isDue && this.#post());
  }

  /**
   * Calls `job(deadline)` again and again until it returns something that is not true. Jobs of a
   * lower `priority` number go first, those of one number in the order in which they came. Returns
   * {cancel()}.
   */
  add(job, { priority = 0 } = {}) {
    const entry = { job, priority };
    const after = this.#jobs.findIndex((other) => other.priority > priority);
    this.#jobs.splice(after < 0 ? this.#jobs.length : after, 0, entry);
    this.#request();
    return { cancel: () => this.#remove(entry) };
  }

  get isIdle() {
    return this.#jobs.length === 0;
  }

  /** A promise that is kept when there is no job. */
  whenIdle() {
    return this.isIdle ? Promise.resolve() : new Promise((resolve) => this.#waiting.push(resolve));
  }

  #remove(entry) {
    const index = this.#jobs.indexOf(entry);
    if (index >= 0) this.#jobs.splice(index, 1);
    this.#tellIdle();
  }

  #request() {
    if (this.#isDue) return;
    this.#isDue = true;
    // A page that is not seen has no frames, and no pixels to be late for.
    if (document.hidden) this.#post();
    else afterRender(() => this.#post());
  }

  #post() {
    this.#channel.port2.postMessage(null);
  }

  #run() {
    if (!this.#isDue) return;
    this.#isDue = false;
    const deadline = new Deadline(this.#budgetMs);
    while (!this.isIdle && deadline.take()) {
      const [entry] = this.#jobs;
      let goesOn = false;
      try {
        goesOn = entry.job(deadline) === true;
      } catch (error) {
        reportError(error);
      }
      if (!goesOn) this.#remove(entry);
    }
    if (!this.isIdle) this.#request();
  }

  #tellIdle() {
    if (this.isIdle) for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

/** The page's one queue. */
export const slices = new Slices();
