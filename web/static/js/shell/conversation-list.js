// The conversations of a course by day, the latest first; or those that a search has found.

import { api } from "../api.js";
import { dayGroup, moment } from "../dates.js";
import { element, fill, icon } from "../elements.js";
import { isWaiting, setWaiting } from "../focus.js";
import { plural, t } from "../i18n.js";
import { withMarks } from "../sources/places.js";
import { menuFor } from "./conversation-menu.js";

const PAGE = 60;
/** Titles that begin with so many equal characters look the same on one line. */
const ALIKE_CHARS = 24;

/**
 * Events: "open" (detail: {id, message: the message that was found, or null}), "listed" (detail: the
 * conversations that were read).
 */
export class ConversationList extends EventTarget {
  #root;
  #actions;
  #course = null;
  /** Conversations of the course that have been read; null before the first time. */
  #known = null;
  #next = null;
  #found = null;
  #query = "";
  #hasFailed = false;
  #current = null;
  #shown = "";

  /** `actions`: {rename(conversation), remove(conversation)}. */
  constructor(root, actions) {
    super();
    this.#root = root;
    this.#actions = actions;
    root.addEventListener("click", (event) => this.#clicked(event));
  }

  set current(conversation) {
    this.#current = conversation;
    this.refresh();
  }

  /** Reads the newest ones again: a title or an order may have changed. */
  async reload(course) {
    if (course !== this.#course) this.#empty(course);
    try {
      const page = await api.conversations({ course, limit: PAGE });
      if (course !== this.#course) return;
      this.#take(page);
      this.#hasFailed = false;
      this.dispatchEvent(new CustomEvent("listed", { detail: page.conversations }));
    } catch {
      // What is shown stays; the next change reads it again.
      if (course !== this.#course) return;
      this.#hasFailed = this.#known === null;
    }
    this.refresh();
  }

  /** Shows `found` (conversations with their `snippet`) for `query`; null: all again. */
  showFound(query, found) {
    this.#query = query;
    this.#found = found;
    this.refresh();
  }

  /** A title has changed, here or elsewhere. */
  rename(id, title) {
    for (const conversation of [...(this.#known ?? []), ...(this.#found ?? [])]) {
      if (conversation.id === id) conversation.title = title;
    }
    this.refresh();
  }

  /** It is no more. */
  remove(id) {
    this.#known = this.#known?.filter((conversation) => conversation.id !== id) ?? null;
    this.#found = this.#found?.filter((conversation) => conversation.id !== id) ?? null;
    this.refresh();
  }

  /** Shows what is known, in the language and on the day of now. */
  refresh() {
    const groups = this.#groups();
    const state = JSON.stringify([document.documentElement.lang, this.#current, this.#query, this.#hasFailed, this.#next, groups]);
    if (state === this.#shown) return;
    this.#shown = state;
    const focused = this.#focused();
    const row = this.#rows().findIndex((one) => one.contains(document.activeElement));
    const alike = alikeOf(groups.flatMap(({ conversations }) => conversations));
    fill(this.#root, groups.map((group) => this.#section(group, alike)), this.#foot(groups));
    const again = this.#root.querySelector(focused) ?? this.#neighbour(row);
    again?.focus({ preventScroll: true });
  }

  #rows() {
    return [...this.#root.querySelectorAll(".conversation-row")];
  }

  /** What has the focus after the row at `index` (-1: none) has gone: its neighbour's link. */
  #neighbour(index) {
    if (index < 0) return null;
    const rows = this.#rows();
    return rows[Math.min(index, rows.length - 1)]?.querySelector("a") ?? document.querySelector("a.new-conversation");
  }

  #empty(course) {
    this.#course = course;
    this.#known = null;
    this.#next = null;
    this.#found = null;
  }

  #take({ conversations, next = null }) {
    const last = conversations.at(-1);
    const ids = new Set(conversations.map(({ id }) => id));
    // What had been read beyond the first page stays behind it.
    const older = (this.#known ?? []).filter(({ id, updated_at: time }) => next !== null && !ids.has(id) && time <= last.updated_at);
    if (older.length === 0) this.#next = next;
    this.#known = [...conversations, ...older];
  }

  async #more(button) {
    if (isWaiting(button)) return;
    setWaiting(button, true);
    const course = this.#course;
    const first = this.#known.length;
    try {
      const { conversations, next = null } = await api.conversations({ course, limit: PAGE, before: this.#next });
      if (course !== this.#course) return;
      const ids = new Set(this.#known.map(({ id }) => id));
      this.#known = [...this.#known, ...conversations.filter(({ id }) => !ids.has(id))];
      this.#next = next;
      this.refresh();
      this.#root.querySelectorAll(".conversation")[first]?.focus();
    } catch {
      setWaiting(button, false);
    }
  }

  /** [{name, conversations}] as they are shown. */
  #groups() {
    if (this.#found !== null) return this.#found.length ? [{ name: plural("sidebar.found", this.#found.length), conversations: this.#found }] : [];
    const groups = new Map();
    for (const conversation of this.#known ?? []) {
      const name = dayGroup(new Date(conversation.updated_at));
      groups.set(name, [...(groups.get(name) ?? []), conversation]);
    }
    return [...groups].map(([name, conversations]) => ({ name, conversations }));
  }

  #section({ name, conversations }, alike) {
    return element(
      "section",
      {},
      element("h2", { class: "conversations-day" }, name),
      element(
        "ul",
        {},
        conversations.map((conversation) =>
          element("li", { class: "conversation-row" }, this.#link(conversation, alike.has(conversation)), menuFor(conversation, this.#actions)),
        ),
      ),
    );
  }

  /** `isAlike`: another title looks the same, so that all of it is shown, and when it was used. */
  #link({ id, title, snippet, updated_at: time, carried_from: carriedFrom }, isAlike) {
    const name = title || t("sidebar.untitled");
    const about = [isAlike && moment(new Date(time)), carriedFrom && t("sidebar.carried")].filter(Boolean);
    return element(
      "a",
      { href: `/c/${encodeURIComponent(id)}`, class: "conversation", "aria-current": id === this.#current ? "page" : null, title: name, data: { id, message: snippet?.message ?? "" }, dir: "auto" },
      element("span", { class: isAlike ? "conversation-title is-whole" : "conversation-title" }, name),
      about.length > 0 && element("span", { class: "conversation-about" }, carriedFrom && icon("summary"), about.join(" · ")),
      snippet && element("span", { class: "conversation-snippet", dir: "auto" }, withMarks(snippet.text, snippet.marks, (part) => element("mark", {}, part))),
    );
  }

  #foot(groups) {
    const note = (text, ...more) => element("p", { class: "conversations-none" }, text, more);
    if (this.#found !== null) return groups.length === 0 ? note(t("sidebar.foundNone", { query: this.#query })) : null;
    if (this.#hasFailed) {
      const again = element("button", { class: "link-button", type: "button" }, t("action.retry"));
      again.addEventListener("click", () => this.reload(this.#course));
      return note(t("sidebar.unreachable"), " ", again);
    }
    if (this.#known === null) return null;
    if (groups.length === 0) return note(t("sidebar.none"));
    if (this.#next === null) return null;
    const button = element("button", { class: "quiet conversations-more", type: "button" }, t("sidebar.more"));
    button.addEventListener("click", () => this.#more(button));
    return button;
  }

  /** A selector of what has the focus, to give it back after the list is made anew. */
  #focused() {
    const { id, menu } = this.#root.contains(document.activeElement) ? document.activeElement.dataset : {};
    if (id) return `[data-id="${CSS.escape(id)}"]`;
    return menu ? `[data-menu="${CSS.escape(menu)}"]` : ":not(*)";
  }

  #clicked(event) {
    const link = event.target.closest("a.conversation");
    if (link === null || opensElsewhere(event)) return;
    event.preventDefault();
    const { id, message } = link.dataset;
    this.dispatchEvent(new CustomEvent("open", { detail: { id, message: message || null } }));
  }
}

/** Those of `conversations` whose titles begin as another one's does. */
function alikeOf(conversations) {
  const byBeginning = new Map();
  for (const conversation of conversations) {
    const beginning = Array.from(conversation.title.toLowerCase()).slice(0, ALIKE_CHARS).join("");
    byBeginning.set(beginning, [...(byBeginning.get(beginning) ?? []), conversation]);
  }
  return new Set([...byBeginning.values()].filter(({ length }) => length > 1).flat());
}

/** Whether a click on a link asks for another tab or window. */
export function opensElsewhere(event) {
  return event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0;
}
