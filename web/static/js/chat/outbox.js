// Questions on their way: kept until the server accepts or refuses them, sent again after a lost
// connection or a reload. The id makes a repeated question the same question.

import { messageBytes } from "./connection.js";
import { keep, kept } from "../preferences.js";

const KEY = "lectern.outbox";
/** How a server, or what stands before it, closes at a message that it does not take. */
const TOO_BIG = 1009;

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
    connection.addEventListener("state", () => {
      if (connection.state === "waiting" && connection.closeCode === TOO_BIG) this.#dropLargest();
    });
  }

  /** What waits, oldest first. */
  get messages() {
    return [...this.#messages.values()];
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

  /** What waits is nobody's who is here now. */
  clear() {
    this.#messages.clear();
    this.#save();
  }

  #deliver(message) {
    if (messageBytes(message) <= this.#connection.maxMessageBytes) {
      this.#connection.send(message);
      return;
    }
    this.#drop(message);
  }

  #dropLargest() {
    const [largest] = this.messages.sort((a, b) => messageBytes(b) - messageBytes(a));
    if (largest !== undefined) this.#drop(largest);
  }

  #drop(message) {
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
