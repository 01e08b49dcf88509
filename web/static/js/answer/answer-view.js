// One answer in the transcript: thinking, text, what it waits for, and below it how it ended.

import { AnswerText } from "./answer-text.js";
import { joinCitations } from "./citations.js";
import { element } from "../elements.js";
import { forgetFrame, onRender } from "../frames.js";
import { explain } from "./help-link.js";
import { t } from "../i18n.js";
import { SeamNote } from "./seam-note.js";
import { citable } from "../sources/sources.js";
import { Tail } from "./tail.js";
import { Thinking } from "./thinking.js";
import { Waiting } from "./waiting.js";

/**
 * `question` is the text that is answered, empty for a summary. `actions`: what actions.js calls,
 * `judge(answer, value, note)` (a promise of whether that is stored), `openSource(passage)`,
 * `watchCitations(prose, find)`, and `connection`. `onRendered` is called after each render, when
 * the height may have changed.
 */
export class AnswerView {
  #answer;
  #actions;
  #onRendered;
  #text;
  #above;
  #below;
  /** Each is made for the answers that have something to show in it. */
  #thinking = null;
  #waiting = null;
  #tail;
  #seamNote;
  #citations = null;
  #frame = () => this.#render();
  #needsAll = true;
  #listener = (event) => this.#schedule(event.detail === "all");

  constructor(answer, question, actions, onRendered) {
    this.#answer = answer;
    this.#actions = actions;
    this.#onRendered = onRendered;
    this.prose = element("div", { class: "prose", lang: languageOf(question) });
    // What comes and goes beside the text has parents of its own: rules for the order of siblings
    // (the browser's own for MathML have some) make it style the whole text again otherwise.
    this.#above = element("div", { class: "answer-above" });
    this.#below = element("div", { class: "answer-below" });
    this.tail = element("div", { class: "answer-tail" });
    const title = answer.isSummary ? "transcript.summary" : "transcript.answer";
    this.root = element(
      "article",
      { class: answer.isSummary ? "answer summary" : "answer", tabindex: "-1" },
      element("h2", { class: answer.isSummary ? "summary-title" : "visually-hidden", "data-t": title }, t(title)),
      this.#above,
      this.prose,
      this.#below,
      this.tail,
    );
    this.#text = new AnswerText(this.prose, question);
    this.#tail = new Tail(this.tail, answer, actions, { heir: this.root, onResized: () => onRendered(this) });
    this.#seamNote = new SeamNote(this.prose, this.root, answer, actions);
    this.prose.addEventListener("click", (event) => this.#openCitation(event));
    this.#actions.watchCitations?.(this.prose, (chip) => this.#cited(chip));
    answer.addEventListener("change", this.#listener);
    this.#render();
  }

  get answer() {
    return this.#answer;
  }

  /** The language has changed. */
  refresh() {
    this.#text.refresh();
    this.#waiting?.refresh();
    this.#schedule(true);
  }

  dispose() {
    this.#answer.removeEventListener("change", this.#listener);
    this.#waiting?.dispose();
    this.#seamNote.close();
    forgetFrame(this.#frame);
    this.#text.dispose();
  }

  #schedule(all) {
    this.#needsAll ||= all;
    onRender(this.#frame);
  }

  #render() {
    const answer = this.#answer;
    if (this.#needsAll) this.#citations = answer.isRunning ? null : joinCitations(answer.text, answer.citations);
    if (answer.isRunning) this.#text.grow(answer.text, answer.seams, citable(answer));
    else this.#text.settle(answer.text, answer.seams, citable(answer), this.#citations);
    if (this.#needsAll || this.root.dataset.phase !== answer.phase) this.#renderFrame();
    this.#renderThinking();
    this.#renderWaiting();
    this.#needsAll = false;
    this.#onRendered(this);
  }

  #renderFrame() {
    const answer = this.#answer;
    Object.assign(this.root.dataset, { state: answer.state, phase: answer.phase, message: answer.id ?? "" });
    this.root.setAttribute("aria-busy", String(answer.isRunning));
    if (answer.isUndoing) this.#seamNote.close();
    this.#tail.render();
  }

  /** Below the text: a continuation is waited for where the reader is. */
  #renderWaiting() {
    const answer = this.#answer;
    if (!answer.isRunning) {
      this.#waiting?.dispose();
      this.#waiting = null;
      return;
    }
    if (this.#waiting === null) {
      this.#waiting = new Waiting(answer, this.#actions.connection, (nowMs) => this.#thinking?.tick(nowMs));
      this.#below.append(this.#waiting.root);
    }
    this.#waiting.update();
  }

  #renderThinking() {
    const answer = this.#answer;
    if (answer.thinking === "") {
      this.#thinking?.root.remove();
      this.#thinking = null;
      return;
    }
    if (this.#thinking === null) {
      this.#thinking = new Thinking();
      this.#above.append(this.#thinking.root);
    }
    if (answer.isThinking) this.#thinking.grow(answer.thinking, performance.now());
    else {
      const tokens = answer.usage?.completion_tokens_details?.reasoning_tokens ?? null;
      const isCut = !answer.isRunning && answer.finishDetail?.in === "reasoning";
      this.#thinking.end(answer.thinking, { ms: answer.thinkingMs ?? null, tokens, isCut });
    }
  }

  #openCitation(event) {
    if (event.target.closest(".unsourced") !== null) explain("citation");
    const chip = event.target.closest(".cite");
    if (chip === null) return;
    const n = Number(chip.dataset.n);
    const passage = this.#cited(chip);
    if (passage === undefined) return;
    for (const card of this.tail.querySelectorAll(".source")) {
      const isCited = Number(card.dataset.n) === n;
      card.classList.toggle("source-cited", isCited);
      if (isCited) card.closest(".fold")?.setAttribute("open", "");
    }
    this.#actions.openSource(passage);
  }

  /** The passage behind a chip, with what of it supports the sentence; undefined if unknown. */
  #cited(chip) {
    const passage = citable(this.#answer).get(Number(chip.dataset.n));
    const citation = this.#citations?.[Number(chip.dataset.index ?? -1)];
    return passage && citation ? { ...passage, marks: citation.marks } : passage;
  }
}

/** The language that the model was told to answer `question` in; null for a summary. */
function languageOf(question) {
  if (question === "") return null;
  return /\p{Script=Han}/u.test(question) ? "zh-CN" : "en";
}
