// The one polite live region: each phase once, never the text of an answer.

import { describeFinish, describePhase } from "../answer/finish.js";

export class Status {
  #region;
  #answer = null;
  #said = "";
  #listener = () => this.#update();

  constructor(region) {
    this.#region = region;
  }

  /** Announces the phases of `answer` from now on (null: of none). */
  watch(answer) {
    this.#answer?.removeEventListener("change", this.#listener);
    this.#answer = answer;
    answer?.addEventListener("change", this.#listener);
    if (answer) this.#update();
  }

  say(text) {
    if (text === this.#said) return;
    this.#said = text;
    this.#region.textContent = text;
  }

  #update() {
    const answer = this.#answer;
    this.say(answer.isRunning ? describePhase(answer) : describeFinish(answer).text);
    if (!answer.isRunning) this.watch(null);
  }
}
