// One answer in the transcript.

import { AnswerText } from "./answer-text.js";
import { joinCitations } from "./citations.js";
import { copyText } from "./code-blocks.js";
import { contextMeter, detailRows } from "./details.js";
import { element, fill, icon } from "../elements.js";
import { describeFinish, describePhase } from "./finish.js";
import { FeedbackButtons } from "./feedback.js";
import { number, percent, plural, t } from "../i18n.js";
import { citable, sourcesSection } from "../sources/sources.js";

/**
 * `question` is the text that is answered. `actions`: {continueAnswer(answer), retry(answer), newConversation(), openSource(passage),
 * judge(answer, value, note)};
 * `onRendered` is called after each render, when the height may have changed.
 */
export class AnswerView {
  #answer;
  #actions;
  #onRendered;
  #text;
  #citations = null;
  #frame = null;
  #needsAll = true;
  #listener = (event) => this.#schedule(event.detail === "all");

  constructor(answer, question, actions, onRendered) {
    this.#answer = answer;
    this.#actions = actions;
    this.#onRendered = onRendered;
    this.phase = element("p", { class: "phase" });
    this.prose = element("div", { class: "prose" });
    this.tail = element("div", { class: "answer-tail" });
    this.root = element(
      "article",
      { class: "answer" },
      element("h2", { class: "visually-hidden", "data-t": "transcript.answer" }, t("transcript.answer")),
      this.phase,
      this.prose,
      this.tail,
    );
    this.#text = new AnswerText(this.prose, question);
    this.prose.addEventListener("click", (event) => this.#openCitation(event));
    answer.addEventListener("change", this.#listener);
    this.#render();
  }

  get answer() {
    return this.#answer;
  }

  /** The language has changed. */
  refresh() {
    this.#schedule(true);
  }

  dispose() {
    this.#answer.removeEventListener("change", this.#listener);
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
  }

  #schedule(all) {
    this.#needsAll ||= all;
    this.#frame ??= requestAnimationFrame(() => this.#render());
  }

  #render() {
    this.#frame = null;
    const answer = this.#answer;
    if (this.#needsAll) this.#citations = answer.isRunning ? null : joinCitations(answer.text, answer.citations);
    this.#text.show(answer.text, answer.seams, citable(answer), this.#citations);
    if (this.#needsAll || this.root.dataset.phase !== answer.phase) this.#renderFrame();
    this.#needsAll = false;
    this.#onRendered(this);
  }

  #renderFrame() {
    const answer = this.#answer;
    Object.assign(this.root.dataset, { state: answer.state, phase: answer.phase, message: answer.id ?? "" });
    this.root.setAttribute("aria-busy", String(answer.isRunning));
    this.#renderPhase();
    if (answer.isRunning) {
      this.tail.replaceChildren();
      return;
    }
    this.#text.end();
    const finish = describeFinish(answer);
    const isNotice = finish.tone === "amber" || finish.tone === "red";
    const action = this.#actionButton(finish.action);
    fill(
      this.tail,
      isNotice ? notice(finish, action) : null,
      answer.noSupport ? notice({ tone: "amber", text: t("notice.noSupport") }, null) : null,
      sourcesSection(answer, this.#actions.openSource),
      this.#foot(finish, isNotice ? null : action),
    );
  }

  #renderPhase() {
    const answer = this.#answer;
    this.phase.hidden = !answer.isRunning || (answer.phase === "writing" && !answer.isStopping);
    if (this.phase.hidden) return;
    const progress = answer.phase === "reading" ? answer.progress : null;
    const text = describePhase(answer);
    const pulse = element("span", { class: "pulse", "aria-hidden": "true" });
    fill(this.phase, pulse, text, progress !== null && progress < 1 ? progressBar(text, progress) : null);
  }

  #actionButton(action) {
    const answer = this.#answer;
    const button = (name, label, listener) => {
      const node = element("button", { class: "action", type: "button", data: { action } }, icon(name), t(label));
      node.addEventListener("click", () => {
        node.disabled = true;
        listener();
      });
      return node;
    };
    if (action === "continue") return button("down", "action.continue", () => this.#actions.continueAnswer(answer));
    if (action === "retry") return button("retry", "action.retry", () => this.#actions.retry(answer));
    if (action === "new") return button("plus", "action.newConversation", () => this.#actions.newConversation());
    return null;
  }

  #foot(finish, action) {
    const answer = this.#answer;
    const isNotice = finish.tone === "amber" || finish.tone === "red";
    const words = isNotice
      ? null
      : element("span", { class: `finish finish-${finish.tone}` }, icon(finish.tone === "done" ? "check" : "info"), finish.text);
    const rows = detailRows(answer);
    const meter = contextMeter(answer.context);
    const feedback = answer.id !== null && answer.text ? this.#feedback() : null;
    const drawer = rows === null && meter === null ? null : element("div", { class: "details", hidden: true }, rows, meter);
    return element(
      "div",
      { class: "answer-foot" },
      element(
        "div",
        { class: "foot-line" },
        words,
        action,
        feedback?.buttons,
        drawer && this.#detailsButton(drawer),
        answer.text && this.#copyButton(),
      ),
      feedback?.note,
      drawer,
    );
  }

  #detailsButton(drawer) {
    const { usage, timing } = this.#answer;
    const brief = [];
    if (usage?.completion_tokens > 0) brief.push(plural("details.tokens", usage.completion_tokens));
    if (timing?.tokens_per_s) brief.push(t("details.speedValue", { rate: number(timing.tokens_per_s, 1) }));
    const button = element(
      "button",
      { class: "quiet details-toggle", type: "button", "aria-expanded": "false" },
      t("details.show"),
      brief.length > 0 ? element("span", { class: "details-brief" }, brief.join(" · ")) : null,
      icon("chevron"),
    );
    button.addEventListener("click", () => {
      drawer.hidden = !drawer.hidden;
      button.setAttribute("aria-expanded", String(!drawer.hidden));
      this.#onRendered(this);
    });
    return button;
  }

  #feedback() {
    const answer = this.#answer;
    return new FeedbackButtons(answer.feedback, (value, note) => {
      answer.feedback = value === "none" ? null : { value, note };
      return this.#actions.judge(answer, value, note);
    });
  }

  #copyButton() {
    const label = element("span", {}, t("action.copy"));
    const button = element("button", { class: "quiet copy-answer", type: "button" }, icon("copy"), label);
    button.addEventListener("click", async () => {
      label.textContent = t((await copyText(this.#answer.text)) ? "code.copied" : "code.copyFailed");
    });
    return button;
  }

  #openCitation(event) {
    const chip = event.target.closest(".cite");
    if (chip === null) return;
    const n = Number(chip.dataset.n);
    const passage = citable(this.#answer).get(n);
    if (passage === undefined) return;
    for (const card of this.tail.querySelectorAll(".source")) {
      const isCited = Number(card.dataset.n) === n;
      card.classList.toggle("source-cited", isCited);
      if (isCited) card.closest(".fold")?.setAttribute("open", "");
    }
    const citation = this.#citations?.[Number(chip.dataset.index ?? -1)];
    this.#actions.openSource(citation ? { ...passage, marks: citation.marks } : passage);
  }
}

/** How much of the prompt is read: `progress` from 0 to 1. */
function progressBar(label, progress) {
  const whole = Math.round(progress * 100);
  const bar = element(
    "span",
    {
      class: "phase-bar",
      role: "progressbar",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": whole,
      "aria-valuetext": percent(progress),
    },
    element("span", {}),
  );
  bar.firstChild.style.width = `${whole}%`;
  return [bar, element("span", { class: "phase-percent", "aria-hidden": "true" }, percent(progress))];
}

function notice(finish, action) {
  const code = finish.code ? element("span", { class: "notice-code" }, finish.code) : null;
  return element(
    "div",
    { class: `notice notice-${finish.tone}` },
    icon(finish.tone === "red" ? "alert" : "cut"),
    element("p", { class: "notice-text" }, finish.text, code && " ", code),
    action,
  );
}
