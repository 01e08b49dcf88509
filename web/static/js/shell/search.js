// The search over the titles and texts of one's own conversations.

import { api } from "../api.js";
import { plural, t } from "../i18n.js";

const PAUSE_MS = 250;
const MOST = 50;

/**
 * Events: "found" (detail: {query, conversations}; conversations are null where nothing is looked
 * for), "say" (detail: words for the status region), "failed" (detail: words).
 */
export class Search extends EventTarget {
  #input;
  #course = null;
  #timer = null;
  /** Counts what was looked for: a late reply of an older one is not shown. */
  #turn = 0;

  constructor(input) {
    super();
    this.#input = input;
    input.addEventListener("input", () => this.#later());
    input.addEventListener("keydown", (event) => {
      if (event.isComposing || event.keyCode === 229) return;
      if (event.key === "Enter") this.#look();
      if (event.key !== "Escape" || input.value === "") return;
      // The first Escape empties the box, the next one is the drawer's.
      event.preventDefault();
      event.stopPropagation();
      this.clear();
    });
  }

  get query() {
    return this.#input.value.trim();
  }

  /** Where it looks. Another course begins with all its conversations. */
  set course(course) {
    if (course === this.#course) return;
    this.#course = course;
    this.clear();
  }

  focus() {
    this.#input.focus();
    this.#input.select();
  }

  clear() {
    this.#input.value = "";
    this.#look();
  }

  /** Looks again: what is listed has changed. */
  refresh() {
    if (this.query) this.#look({ silently: true });
  }

  #later() {
    clearTimeout(this.#timer);
    if (this.query) this.#timer = setTimeout(() => this.#look(), PAUSE_MS);
    else this.#look();
  }

  async #look({ silently = false } = {}) {
    clearTimeout(this.#timer);
    const turn = (this.#turn += 1);
    const { query } = this;
    if (!query) {
      this.#tell("found", { query, conversations: null });
      return;
    }
    try {
      const { conversations } = await api.conversations({ course: this.#course, q: query, limit: MOST });
      if (turn !== this.#turn) return;
      this.#tell("found", { query, conversations });
      if (!silently) this.#tell("say", conversations.length ? plural("sidebar.found", conversations.length) : t("sidebar.foundNone", { query }));
    } catch (error) {
      if (turn === this.#turn && !silently) this.#tell("failed", error.words);
    }
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
