// What this page has sent and the server has not answered yet, with what it is to make.

export class Sending {
  #outbox;
  /** Id of the frame → {message, answer, question, conversation}. */
  #pending = new Map();
  /** How often something has been sent: what was read before may lack it. */
  numSent = 0;

  constructor(outbox) {
    this.#outbox = outbox;
  }

  /** Sends the message of an entry, again and again until it is answered. */
  send(entry) {
    this.expect(entry);
    this.#outbox.send(entry.message);
  }

  /** Waits for the answer to a message that the outbox sends by itself. */
  expect(entry) {
    this.numSent += 1;
    this.#pending.set(entry.message.id, entry);
  }

  /** The server has answered: the entry, or undefined for one that nobody here waits for. */
  take(id) {
    this.#outbox.settle(id);
    const entry = this.#pending.get(id);
    this.#pending.delete(id);
    return entry;
  }

  /** What an earlier page has left on its way, oldest first. */
  get left() {
    return this.#outbox.messages.filter(({ id }) => !this.#pending.has(id));
  }

  /** Whether a message is on its way that will open a run in `conversation`. */
  isInto(conversation) {
    return [...this.#pending.values()].some((entry) => entry.conversation === conversation && entry.message.type !== "undo");
  }

  /** What is on its way is nobody's who is here now. */
  clear() {
    this.#outbox.clear();
    this.#pending.clear();
  }
}
