// All messages of a conversation, branches included. Pure: it knows what follows what, and nothing
// of how messages came or how they are shown.

/** What a message is known by here: its id, or what it was sent as while it has none. */
export function keyOf(message) {
  return message.id ?? message.key;
}

/**
 * Messages with `id` or `key`, and `parent` (the key of the message that they follow; null, or one
 * that is not here: a beginning, of which there may be several). Siblings stand in the order in
 * which they were made.
 */
export class MessageTree {
  #nodes = new Map();
  /** Key of a message → key of the one that it hangs at; null: none. */
  #above = new Map();
  #children = new Map();

  /** A tree of messages in any order; siblings keep the order that they have in `messages`. */
  static of(messages) {
    const tree = new MessageTree();
    for (const message of messages) tree.#nodes.set(keyOf(message), message);
    for (const message of messages) tree.#link(message);
    return tree;
  }

  get size() {
    return this.#nodes.size;
  }

  get(key) {
    return this.#nodes.get(key);
  }

  has(message) {
    return this.#nodes.get(keyOf(message)) === message;
  }

  /** All messages, in no order that means anything. */
  all() {
    return [...this.#nodes.values()];
  }

  /** Adds a message as the newest of its siblings; one that is there already stays as it is. */
  add(message) {
    const key = keyOf(message);
    if (this.#nodes.has(key)) return;
    this.#nodes.set(key, message);
    this.#link(message);
  }

  /** Puts `message` in the place of the one at `key`; what followed that follows this one. */
  replace(key, message) {
    const known = this.#nodes.get(key);
    if (known === undefined) return;
    const own = keyOf(message);
    const above = this.#above.get(key);
    const row = this.#children.get(above);
    const below = this.#children.get(key) ?? [];
    for (const map of [this.#nodes, this.#above, this.#children]) map.delete(key);
    this.#nodes.set(own, message);
    this.#above.set(own, above);
    message.parent = above;
    row[row.indexOf(key)] = own;
    if (below.length > 0) this.#children.set(own, below);
    for (const child of below) {
      this.#above.set(child, own);
      this.#nodes.get(child).parent = own;
    }
  }

  /** Takes away a message and all that follows it. */
  remove(key) {
    if (!this.#nodes.has(key)) return;
    const row = this.#children.get(this.#above.get(key));
    row.splice(row.indexOf(key), 1);
    const gone = [key];
    while (gone.length > 0) {
      const next = gone.pop();
      gone.push(...(this.#children.get(next) ?? []));
      for (const map of [this.#nodes, this.#above, this.#children]) map.delete(next);
    }
  }

  /** The messages from a beginning to `leaf`, oldest first; none for a key that is not here. */
  path(leaf) {
    const path = [];
    const seen = new Set();
    for (let key = leaf; key !== null && this.#nodes.has(key) && !seen.has(key); key = this.#above.get(key)) {
      seen.add(key);
      path.push(this.#nodes.get(key));
    }
    return path.reverse();
  }

  /**
   * The end of the branch below `key` (null: below the beginnings): at each fork the one that
   * `choices` (a Map: key of the fork, null for the beginnings → key of a child) names, else the
   * one with the newest message below it. null only where there is nothing.
   */
  leafFrom(key, choices = new Map()) {
    const newest = this.#newest();
    let at = key;
    const seen = new Set([at]);
    for (;;) {
      const row = this.#children.get(at) ?? [];
      if (row.length === 0) return at;
      const chosen = choices.get(at);
      const counted = row.filter((child) => !isEmptyFailure(this.#nodes.get(child)));
      const open = counted.length > 0 ? counted : row;
      at = row.includes(chosen) ? chosen : open.reduce((best, child) => (newest(child, best) ? child : best));
      if (seen.has(at)) return at;
      seen.add(at);
    }
  }

  /** The leaf that holds, or ends the branch of, what was written last. */
  newestLeaf() {
    return this.leafFrom(null);
  }

  /**
   * Where a message stands among those that share its parent: {index, total, previous, next}, the
   * last two keys or null. An answer that failed before its first word is no version beside
   * others, unless it is the one that is asked about.
   */
  siblings(key) {
    const row = (this.#children.get(this.#above.get(key)) ?? []).filter(
      (child) => child === key || !isEmptyFailure(this.#nodes.get(child)),
    );
    const index = row.indexOf(key);
    return { index, total: row.length, previous: row[index - 1] ?? null, next: row[index + 1] ?? null };
  }

  /** Compares children: whether what was written last below `a` is newer than below `b`. */
  #newest() {
    const latest = new Map();
    const order = new Map([...this.#nodes.keys()].map((key, index) => [key, index]));
    // What has come since the conversation was read has no time, and is newer than all that has.
    const weigh = (key) => [this.#nodes.get(key).updatedAt ?? "~", order.get(key)];
    const isAfter = (a, b) => (a[0] === b[0] ? a[1] > b[1] : a[0] > b[0]);
    // Deep conversations would overflow the stack: a walk with a list of its own.
    const below = (top) => {
      if (latest.has(top)) return latest.get(top);
      const walk = [];
      const waiting = [top];
      while (waiting.length > 0) {
        const key = waiting.pop();
        walk.push(key);
        for (const child of this.#children.get(key) ?? []) if (!latest.has(child)) waiting.push(child);
      }
      for (const key of walk.reverse()) {
        const children = (this.#children.get(key) ?? []).map((child) => latest.get(child));
        latest.set(key, children.reduce((best, one) => (isAfter(one, best) ? one : best), weigh(key)));
      }
      return latest.get(top);
    };
    return (a, b) => isAfter(below(a), below(b));
  }

  #link(message) {
    const key = keyOf(message);
    const { parent = null } = message;
    const above = parent !== key && this.#nodes.has(parent) ? parent : null;
    this.#above.set(key, above);
    const row = this.#children.get(above);
    if (row === undefined) this.#children.set(above, [key]);
    else row.push(key);
  }
}

/** An answer that ended in an error before its first word. */
function isEmptyFailure(message) {
  return message.state === "error" && !message.text;
}
