// Conversations with something that the server has not taken: it is on its way, or is a question that
// was refused. The server knows nothing of that, so nobody but this page can find it again.

export class UnsentConversations {
  #all = new Set();

  /** Something is on its way to `conversation`. */
  keep(conversation) {
    this.#all.delete(conversation);
    this.#all.add(conversation);
  }

  /** The server has answered what was on its way. */
  settle(conversation) {
    if (!conversation.hasUnsent) this.#all.delete(conversation);
  }

  drop(conversation) {
    this.#all.delete(conversation);
  }

  /** The stored conversation of this id, or undefined where nothing of it is unsent. */
  get(id) {
    return [...this.#all].find((conversation) => conversation.id === id);
  }

  /** Those that are to begin with it, the latest first. */
  get begun() {
    return [...this.#all].filter(({ id }) => id === null).reverse();
  }

  clear() {
    this.#all.clear();
  }
}
