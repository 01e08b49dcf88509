// Messages that are answered by one reply, which is waited for here.

import { messageBytes } from "./connection.js";
import { newId } from "./outbox.js";

const LONGEST_WAIT_MS = 15_000;

/** Sends messages and matches their replies by id. A lost connection ends what waits. */
export class Requests {
  #connection;
  #waiting = new Map();

  constructor(connection) {
    this.#connection = connection;
    connection.addEventListener("state", () => {
      if (!connection.isOpen) for (const id of [...this.#waiting.keys()]) this.#settle(id, null);
    });
  }

  /** The reply, or the server's `error` message; null where none came. */
  send(message) {
    const whole = { ...message, id: newId() };
    if (messageBytes(whole) > this.#connection.maxMessageBytes || !this.#connection.send(whole)) {
      return Promise.resolve(null);
    }
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#settle(whole.id, null), LONGEST_WAIT_MS);
      this.#waiting.set(whole.id, { resolve, timer });
    });
  }

  /** Takes a message from the server; returns whether it was a reply that is waited for. */
  receive(event) {
    if (!this.#waiting.has(event.id)) return false;
    this.#settle(event.id, event);
    return true;
  }

  #settle(id, reply) {
    const { resolve, timer } = this.#waiting.get(id);
    clearTimeout(timer);
    this.#waiting.delete(id);
    resolve(reply);
  }
}
