// Questions on their way: kept until the server accepts or refuses them, sent again after a lost
// connection or a reload. The id makes a repeated question the same question.

import { messageBytes } from "./connection.js";
import { keep, kept } from "../preferences.js";

const KEY = "lectern.outbox";

/**
 * Event "too-long" (detail: the message): the server would close the connection at it, again and
 * again, so it is not sent.
 */
export class Outbox extends EventTarget {
  #connection;
  #messages = new Map();

  constructor(connection) {
    super();
    this.#connection = connection;
    for (const message of JSON.parse(kept("sessionStorage", KEY) ?? "[]")) {
      this.#messages.set(message.id, message);
    }
    connection.addEventListener("welcome", () => {
      for (const message of this.messages) this.#deliver(message);
    });
  }

  /** What waits, oldest first. */
  get messages() {
    return [...this.#messages.values()];
  }

  get(id) {
    return this.#messages.get(id);
  }

  send(message) {
    this.#messages.set(message.id, message);
    this.#save();
    this.#deliver(message);
  }

  /** The server has answered for this id. */
  settle(id) {
    if (this.#messages.delete(id)) this.#save();
  }

  #deliver(message) {
    if (messageBytes(message) <= this.#connection.maxMessageBytes) {
      this.#connection.send(message);
      return;
    }
    this.settle(message.id);
    this.dispatchEvent(new CustomEvent("too-long", { detail: message }));
  }

  #save() {
    keep("sessionStorage", KEY, this.#messages.size ? JSON.stringify(this.messages) : null);
  }
}

/** An idempotency key. (crypto.randomUUID needs a secure context; a classroom may have plain http.) */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
