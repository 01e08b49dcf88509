// How much of the model's window a long question would take: estimated while it is written, counted
// by the model's own tokens when the writing pauses.

import { number, plural, t } from "../i18n.js";

const PAUSE_MS = 400;
/** Below this share of the room nobody needs to know. */
const QUIET_SHARE = 0.2;
/** Above this one little is left for the passages. */
const CROWDED_SHARE = 0.6;
/** Room for instructions and the answer, while the server has not told. */
const USUAL_ROOM_SHARE = 0.6;
const CHARS_PER_TOKEN = 4;
const IDEOGRAPHS = /[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]/g;

export class BudgetNote {
  #root;
  #count;
  #say;
  /** Tokens that a question may have; null until that is known. */
  #room = null;
  #text = "";
  #tokens = 0;
  /** Whose number it is: "about" is this page's, "exact" and "atLeast" are the server's. */
  #certainty = "about";
  #timer = null;
  /** The level that was told to who does not see it. */
  #told = "";

  /**
   * `count(text)` resolves with {tokens, atLeast, room} as the server counts, null where it cannot;
   * `say(text)` tells a warning to who does not see it.
   */
  constructor(root, connection, { count, say }) {
    this.#root = root;
    this.#count = count;
    this.#say = say;
    connection.addEventListener("welcome", ({ detail }) => {
      const window = detail.model?.window ?? detail.model?.max_model_len;
      this.#room ??= window ? Math.round(window * USUAL_ROOM_SHARE) : null;
      this.refresh();
    });
  }

  /** The text as it is now. */
  update(text) {
    clearTimeout(this.#timer);
    this.#text = text;
    this.#tokens = estimated(text);
    this.#certainty = "about";
    this.refresh();
    if (this.#level !== "") this.#timer = setTimeout(() => this.#ask(text), PAUSE_MS);
  }

  /** Shows it again, in the language of now. */
  refresh() {
    const level = this.#level;
    this.#root.hidden = level === "";
    this.#root.dataset.level = level;
    this.#root.textContent = level && words(level, this.#tokens, this.#room, this.#certainty);
    if (level === "" || level === "fits") this.#told = "";
    else if (this.#certainty !== "about" && level !== this.#told) {
      this.#told = level;
      this.#say(this.#root.textContent);
    }
  }

  get #level() {
    if (this.#room === null) return "";
    const share = this.#tokens / Math.max(1, this.#room);
    if (share > 1) return "over";
    if (share > CROWDED_SHARE) return "crowded";
    return share > QUIET_SHARE ? "fits" : "";
  }

  async #ask(text) {
    const counted = await this.#count(text);
    if (counted === null || text !== this.#text) return;
    this.#tokens = counted.tokens;
    this.#room = counted.room;
    this.#certainty = counted.atLeast ? "atLeast" : "exact";
    this.refresh();
  }
}

/** About how many tokens a text has: most models have one for each ideograph, and longer ones. */
export function estimated(text) {
  const ideographs = text.match(IDEOGRAPHS)?.length ?? 0;
  return Math.round(ideographs * 0.8 + (text.length - ideographs) / CHARS_PER_TOKEN);
}

function words(level, tokens, room, certainty) {
  const size = plural(`budget.${certainty}`, tokens);
  return t(`budget.${level}`, { size, room: number(Math.max(0, room)) });
}
