// What a model thought before its answer: folded, as plain text, and no part of the answer.

import { element, icon } from "../elements.js";
import { plural, t } from "../i18n.js";
import { cleaned } from "./seams.js";
import { elapsed } from "./spans.js";

/** A reader this near to the end of the text is taken along as it grows (CSS pixels). */
const NEAR_PX = 24;

export class Thinking {
  #shown = "";
  #isWriting = false;
  #sinceMs = null;
  #summary = element("span", { class: "thinking-words" });
  #pulse = element("span", { class: "pulse", "aria-hidden": "true" });
  #text = document.createTextNode("");
  #scroller = element("div", { class: "thinking-text", dir: "auto", tabindex: "0", role: "region" }, this.#text);
  root = element(
    "details",
    { class: "thinking" },
    element("summary", {}, this.#pulse, this.#summary, icon("chevron")),
    this.#scroller,
  );

  /** Shows `text`, all of it so far, while the model goes on thinking. */
  grow(text, nowMs) {
    this.#sinceMs ??= nowMs;
    this.#isWriting = true;
    this.#write(text);
    this.tick(nowMs);
  }

  /** The seconds go on. */
  tick(nowMs) {
    if (!this.#isWriting) return;
    const ms = nowMs - this.#sinceMs;
    this.#label(ms < 1000 ? t("thinking.now") : t("thinking.nowFor", { time: elapsed(ms) }));
  }

  /**
   * The model has begun to answer, or has ended. `ms`, `tokens`: null where unknown; `isCut`: it
   * was still thinking when it ended.
   */
  end(text, { ms = null, tokens = null, isCut = false }) {
    this.#isWriting = false;
    this.#sinceMs = null;
    this.#write(text);
    const spent = ms === null ? null : elapsed(Math.max(ms, 1000));
    let words = spent === null ? t("thinking.then") : t("thinking.thenFor", { time: spent });
    if (isCut) words = spent === null ? t("thinking.cut") : t("thinking.cutAfter", { time: spent });
    this.#label(tokens ? `${words} · ${plural("details.tokens", tokens)}` : words);
  }

  #label(words) {
    this.#pulse.hidden = !this.#isWriting;
    if (this.#summary.textContent !== words) this.#summary.textContent = words;
    this.#scroller.setAttribute("aria-label", t("thinking.label"));
  }

  #write(text) {
    if (text === this.#shown) return;
    const box = this.#scroller;
    const follows = this.root.open && box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
    if (text.startsWith(this.#shown)) this.#text.appendData(cleaned(text.slice(this.#shown.length)));
    else this.#text.data = cleaned(text);
    this.#shown = text;
    if (follows) box.scrollTop = box.scrollHeight;
  }
}
