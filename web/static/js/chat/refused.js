// Questions that the server has refused: it knows nothing of them, so the tab keeps them over a reload
// until they are sent again or given up.

import { keep, kept } from "../preferences.js";

const KEY = "lectern.refused";
const LONGEST = 200_000;

export class Refused {
  /** Id of the message → {message, error}. */
  #all = new Map(JSON.parse(kept("sessionStorage", KEY) ?? "[]").map((entry) => [entry.message.id, entry]));
  /** Ids of those that an earlier page has left and none shows yet. */
  #left = new Set(this.#all.keys());

  /** One that is very long would leave no room for others. */
  keep(message, { code, message: words, retryable }) {
    if ((message.text?.length ?? 0) > LONGEST) return;
    this.#all.set(message.id, { message, error: { code, message: words, retryable } });
    this.#save();
  }

  /** As `keep`, of what an earlier page has sent, and this one does not show. */
  leave(message, error) {
    this.keep(message, error);
    if (this.#all.has(message.id)) this.#left.add(message.id);
  }

  /** Each {message, error} that an earlier page has left, and that `show(message, error)` does not
   * take, is offered again the next time. */
  restore(show) {
    for (const id of this.#left) {
      const { message, error } = this.#all.get(id);
      if (show(message, error)) this.#left.delete(id);
    }
  }

  /** It is sent again, or given up. */
  forget(message) {
    this.#left.delete(message.id);
    if (this.#all.delete(message.id)) this.#save();
  }

  /** A conversation is no more: its questions are nobody's. */
  forgetOf(conversation) {
    for (const { message } of [...this.#all.values()]) if (message.conversation === conversation) this.forget(message);
  }

  /** A conversation is no more, unknown to this page: its questions are to begin others. */
  detach(conversation) {
    for (const { message } of this.#all.values()) {
      if (message.conversation !== conversation) continue;
      delete message.conversation;
      delete message.parent;
      this.#left.add(message.id);
    }
    this.#save();
  }

  clear() {
    this.#all.clear();
    this.#left.clear();
    this.#save();
  }

  #save() {
    keep("sessionStorage", KEY, this.#all.size ? JSON.stringify([...this.#all.values()]) : null);
  }
}
