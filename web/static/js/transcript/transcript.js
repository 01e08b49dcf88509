// The transcript: questions and answers in order, and the line where the model's view begins.

import { AnswerView } from "../answer/answer-view.js";
import { element, icon } from "../elements.js";
import { plural, t } from "../i18n.js";
import { Question } from "../chat/messages.js";
import { cleaned } from "../answer/seams.js";

export class Transcript {
  #root;
  #scrolling;
  #actions;
  #views = new Map();
  #line = null;
  #messages = [];

  constructor(root, scrolling, actions) {
    this.#root = root;
    this.#scrolling = scrolling;
    this.#actions = actions;
  }

  /** Shows a conversation from its first message. */
  show(messages) {
    this.#clear();
    this.#messages = messages;
    for (const message of messages) this.#append(message);
    this.#placeLine();
    this.#scrolling.toNewest();
  }

  append(...messages) {
    for (const message of messages) this.#append(message);
    this.#placeLine();
    this.#scrolling.toNewest();
  }

  /** Every string again, in the language of now. */
  refresh() {
    for (const view of this.#views.values()) view.refresh?.();
    this.#placeLine();
  }

  #append(message) {
    const view =
      message instanceof Question
        ? new QuestionView(message)
        : new AnswerView(message, this.#questionOf(message), this.#actions, () => this.#rendered());
    this.#views.set(message, view);
    this.#root.append(view.root);
  }

  #questionOf(answer) {
    return this.#messages[this.#messages.indexOf(answer) - 1]?.text ?? "";
  }

  #clear() {
    for (const view of this.#views.values()) view.dispose?.();
    this.#views.clear();
    this.#line = null;
    this.#root.replaceChildren();
  }

  #rendered() {
    this.#placeLine();
    this.#scrolling.follow();
  }

  /** Above the first question that the newest answer's model could still see. */
  #placeLine() {
    const answers = this.#messages.filter((message) => !(message instanceof Question));
    const newest = answers.findLast((answer) => answer.context !== null);
    const dropped = newest?.context.turns_dropped ?? 0;
    // A question that was refused is no turn.
    const questions = this.#messages.filter((message) => message instanceof Question && message.id !== null);
    const position = this.#messages.indexOf(newest);
    const own = questions.findLastIndex((question) => this.#messages.indexOf(question) < position);
    const first = questions[own - (newest?.context.turns_kept ?? 0)];
    if (dropped === 0 || first === undefined) {
      this.#line?.remove();
      this.#line = null;
      return;
    }
    const text = plural("history.cut", dropped);
    if (this.#line !== null && this.#line.textContent === text && this.#line.nextSibling === this.#views.get(first).root) return;
    this.#line?.remove();
    this.#line = element("div", { class: "view-line", role: "note" }, element("span", {}, icon("cut"), text));
    this.#views.get(first).root.before(this.#line);
  }
}

class QuestionView {
  constructor(question) {
    this.heading = element("h2", { class: "visually-hidden" }, t("transcript.question"));
    this.root = element(
      "article",
      { class: "question" },
      this.heading,
      element("p", { class: "question-text", dir: "auto" }, cleaned(question.text)),
    );
  }

  refresh() {
    this.heading.textContent = t("transcript.question");
  }
}
