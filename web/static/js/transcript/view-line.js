// The line above the first question that the model could still see.

import { element, fill, icon } from "../elements.js";
import { plural } from "../i18n.js";
import { Answer } from "../chat/messages.js";

/**
 * Where the view of the newest answer's model begins: {question, dropped} (how many turns it did
 * not see), or null where it saw all, or nobody knows. `messages` is a branch, oldest first.
 */
function viewStart(messages) {
  const position = messages.findLastIndex((message) => message instanceof Answer && message.context !== null);
  if (position < 0) return null;
  const newest = messages[position];
  const dropped = newest.context.turns_dropped ?? 0;
  if (dropped === 0) return null;
  const question = newest.viewFrom === undefined ? counted(messages, position) : messages.find(({ id }) => id === newest.viewFrom);
  return question ? { question, dropped } : null;
}

/** For answers of old, which tell only how many turns were kept: those without text, or not found
 * in the materials, are none. */
function counted(messages, position) {
  let left = messages[position].context.turns_kept ?? 0;
  let first = position - 1;
  for (let at = position - 2; at > 0 && left > 0; at -= 2) {
    if (!messages[at].text || messages[at].notFound) continue;
    left -= 1;
    first = at - 1;
  }
  return messages[first];
}

export class ViewLine {
  root = element("div", { class: "view-line", role: "note" });
  #text = null;

  /** Puts the line where `messages` say; `rootOf(question)` is undefined for one not on the page. */
  place(messages, rootOf) {
    const start = viewStart(messages);
    const below = start && rootOf(start.question);
    if (!below) {
      this.root.remove();
      return;
    }
    const text = plural("history.cut", start.dropped);
    if (text !== this.#text) fill(this.root, element("span", {}, icon("cut"), text));
    this.#text = text;
    if (this.root.nextSibling !== below) below.before(this.root);
  }
}
