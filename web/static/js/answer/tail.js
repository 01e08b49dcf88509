// What stands below an answer that has ended: how it ended, its sources, and what can be done.

import { actionButtons } from "./actions.js";
import { copyText } from "./code-blocks.js";
import { brief, details } from "./details.js";
import { FeedbackButtons } from "./feedback.js";
import { describeFinish } from "./finish.js";
import { element, fill, icon } from "../elements.js";
import { keepFocus } from "../focus.js";
import { language, plural, t } from "../i18n.js";
import { sourcesSection } from "../sources/sources.js";

/** How long a button says that it has copied. */
const COPIED_MS = 2000;

export class Tail {
  #root;
  #answer;
  #actions;
  #heir;
  #onResized;
  #shown = [];
  #feedback = null;
  #isOpen = false;
  #busyNote = element("p", { class: "foot-note" });

  /**
   * `root` is filled; `heir` takes the focus of a button that goes; `onResized()` is called where
   * the reader changes the height.
   */
  constructor(root, answer, actions, { heir, onResized }) {
    this.#root = root;
    this.#answer = answer;
    this.#actions = actions;
    this.#heir = heir;
    this.#onResized = onResized;
  }

  /** Shows the end, or nothing while the answer runs. What has not changed is left alone. */
  render() {
    const answer = this.#answer;
    const shown = [
      ...[answer.state, answer.id, answer.finishDetail, answer.usage, answer.timing, answer.error],
      ...[answer.passages, answer.citations, answer.noSupport, answer.canContinue, answer.context],
      ...[answer.notFoundParts, answer.isUndoing, answer.text, language()],
    ];
    if (shown.every((value, index) => value === this.#shown[index])) return;
    if (answer.isRunning) this.#feedback = null;
    else if (language() !== this.#shown.at(-1)) this.#feedback?.refresh();
    this.#shown = shown;
    keepFocus(this.#root, this.#heir, () => {
      if (answer.isRunning) this.#root.replaceChildren();
      else this.#fill();
    });
  }

  #fill() {
    const answer = this.#answer;
    const finish = describeFinish(answer);
    const isNotice = finish.tone === "amber" || finish.tone === "red";
    const ways = finish.actions.filter((name) => name !== "undo");
    const buttons = this.#buttons(ways);
    this.#busyNote.textContent = "";
    const hasWords = isNotice || buttons.length > 0;
    fill(
      this.#root,
      isNotice ? notice(finish, buttons) : null,
      hasWords && !isNotice ? element("div", { class: "end-line" }, finishWords(finish), buttons) : null,
      answer.notFoundParts.map((part) => notice({ tone: "amber", text: t("notice.partNotFound", { part }) }, [])),
      answer.noSupport ? notice({ tone: "amber", text: t("notice.noSupport") }, []) : null,
      answer.isSummary ? leftOut(answer.context?.turns_left_out ?? 0) : null,
      sourcesSection(answer, this.#actions.openSource),
      this.#foot(finish, hasWords ? null : finishWords(finish)),
    );
  }

  #foot(finish, words) {
    const answer = this.#answer;
    const canJudge = answer.id !== null && answer.text !== "" && !answer.isSummary;
    if (canJudge) this.#feedback ??= this.#makeFeedback();
    const feedback = canJudge ? this.#feedback : null;
    const content = details(answer);
    const drawer = content && element("div", { class: "details", hidden: !this.#isOpen }, content);
    return element(
      "div",
      { class: "answer-foot" },
      element(
        "div",
        { class: "foot-line" },
        words,
        feedback?.buttons,
        answer.text ? this.#copyButton() : null,
        this.#quietButtons(finish),
        drawer && this.#detailsButton(drawer),
      ),
      this.#busyNote,
      feedback?.note,
      drawer,
    );
  }

  /** An answer that failed is retried, where that may help: no other way leads to a new one. */
  #quietButtons({ actions }) {
    const { id, state, isSummary } = this.#answer;
    const canRegenerate = id !== null && state !== "error" && !isSummary && !actions.includes("retry");
    const names = [
      canRegenerate ? "regenerate" : null,
      actions.includes("undo") ? "undo" : null,
    ];
    return this.#buttons(names.filter(Boolean)).map((button) => {
      button.className = "quiet";
      return button;
    });
  }

  /** While the last continuation is being taken back, nobody knows yet what there is to go on with. */
  #buttons(names) {
    const buttons = actionButtons(names, this.#answer, this.#actions, () => {
      this.#busyNote.textContent = t("action.busy");
      this.#actions.say(t("action.busy"));
    });
    for (const button of buttons) button.disabled = this.#answer.isUndoing;
    return buttons;
  }

  #detailsButton(drawer) {
    const figures = brief(this.#answer);
    const button = element(
      "button",
      { class: "quiet details-toggle", type: "button", "aria-expanded": String(this.#isOpen), data: { action: "details" } },
      t("details.show"),
      figures ? element("span", { class: "details-brief" }, figures) : null,
      icon("chevron"),
    );
    button.addEventListener("click", () => {
      this.#isOpen = !this.#isOpen;
      drawer.hidden = !this.#isOpen;
      button.setAttribute("aria-expanded", String(this.#isOpen));
      this.#onResized();
    });
    return button;
  }

  #makeFeedback() {
    const answer = this.#answer;
    return new FeedbackButtons(answer.feedback, (value, note) => this.#actions.judge(answer, value, note));
  }

  #copyButton() {
    const label = element("span", {}, t("action.copy"));
    const button = element(
      "button",
      { class: "quiet copy-answer", type: "button", data: { action: "copy" } },
      icon("copy"),
      label,
    );
    button.addEventListener("click", async () => {
      label.textContent = t((await copyText(this.#answer.text)) ? "code.copied" : "code.copyFailed");
      setTimeout(() => (label.textContent = t("action.copy")), COPIED_MS);
    });
    return button;
  }
}

function finishWords({ tone, text }) {
  return element("span", { class: `finish finish-${tone}` }, icon(tone === "done" ? "check" : "info"), text);
}

/** What a summary does not speak of. */
function leftOut(count) {
  return count === 0 ? null : notice({ tone: "amber", text: plural("summary.leftOut", count) }, []);
}

/** The first of `buttons` is the one to press. */
function notice({ tone, text, code = null }, buttons) {
  const shownCode = code && [" ", element("span", { class: "notice-code" }, code)];
  const words = element("p", { class: "notice-text" }, text, shownCode);
  const actions = buttons.length > 0 ? element("div", { class: "notice-actions" }, buttons) : null;
  return element("div", { class: `notice notice-${tone}` }, icon(tone === "red" ? "alert" : "cut"), words, actions);
}
