// The transcript: the questions and answers of the shown branch, in order.

import { AnswerView } from "../answer/answer-view.js";
import { Answer, Question } from "../chat/messages.js";
import { BranchSwitcher } from "./branch-switcher.js";
import { CarriedLinks } from "./carried-links.js";
import { QuestionView } from "./question-view.js";
import { ViewLine } from "./view-line.js";
import { TranscriptWindow } from "./window.js";

/** So many messages are made at once, so that a reader sees the newest at once. */
const AT_ONCE = 4;

/**
 * `actions`: `editWaits` (an EditWaits, or none), those of AnswerView and of QuestionView, `versions(message)` ({index, total}),
 * `linksOf(message)` and `openConversation(link)` (see CarriedLinks), and `say(text)` to tell what
 * is not seen.
 */
export class Transcript {
  #root;
  #scrolling;
  #actions;
  /** Shows another version of a message; chat.js does. */
  #turnTo;
  #views = new Map();
  #switchers = new Map();
  /** Of answers, by message. */
  #links = new Map();
  #line = new ViewLine();
  #window;
  #messages = [];
  /** The newest question with an edit when the conversation was opened; null where there is none. */
  #edited = null;
  /** Views are being made: the layout is looked at once, when all are there. */
  #isMaking = false;

  constructor(root, scrolling, actions) {
    this.#root = root;
    this.#scrolling = scrolling;
    this.#turnTo = actions.choose;
    this.#actions = { ...actions, choose: (message, direction) => this.#choose(message, direction) };
    this.#window = new TranscriptWindow(root, root.closest(".scroll"), (message) => this.#make(message).root, () => this.#rendered());
  }

  /** Shows a conversation from its newest message. */
  show(messages) {
    this.#keep(0);
    this.#edited = messages.findLast((message) => message instanceof Question && this.#isEdited(message)) ?? null;
    this.#fill(messages);
    // An empty conversation begins with its welcome.
    if (messages.length === 0) this.#scrolling.toTop();
    else this.#scrolling.toNewest();
    if (this.#edited === null) this.#actions.editWaits?.forget();
    else this.#actions.editWaits?.offer(this.#views.get(this.#edited)?.root ?? null, () => this.#goToEdit());
  }

  #isEdited(question) {
    return ![undefined, "", question.text].includes(this.#actions.editOf?.(question));
  }

  #goToEdit() {
    const edited = this.#edited;
    this.#scrolling.stay();
    if (!this.reveal(edited.id)) return;
    this.#views.get(edited).root.querySelector(".question-input")?.focus({ preventScroll: true });
  }

  /** Shows other messages of the same conversation: what stays the same is not made again. */
  update(messages) {
    let same = 0;
    while (same < messages.length && messages[same] === this.#messages[same]) same += 1;
    const isSame = same === messages.length && same === this.#messages.length;
    const hadFocus = this.#root.contains(document.activeElement);
    if (!isSame) {
      if (!messages.includes(this.#edited)) this.#actions.editWaits?.forget();
      this.#keep(same);
      this.#fill(messages);
    }
    this.#updateSwitchers();
    this.#rendered();
    // What has just been asked is what its reader waits for.
    const newest = messages.at(-1);
    const isAsked = !isSame && newest instanceof Answer && newest.isRunning && newest.id === null;
    if (isAsked) this.#scrolling.toNewest();
    if (document.activeElement !== document.body || !(isAsked || hadFocus)) return;
    // The button that was pressed, or what else had the focus, has gone with its message: what
    // stands in its place is the nearest.
    const nearest = isAsked ? newest : messages.slice(same).find((message) => this.#views.has(message));
    this.#views.get(nearest ?? messages.at(-1))?.root.focus({ preventScroll: true });
  }

  /** Shows messages that were added at the end, and goes there. */
  append(...messages) {
    this.update([...this.#messages, ...messages.filter((message) => !this.#messages.includes(message))]);
    this.#scrolling.toNewest();
  }

  /** Opens the newest question for editing; whether there is one. */
  editLast() {
    const question = this.#messages.findLast((message) => message instanceof Question);
    if (question === undefined || !this.#views.has(question)) return false;
    this.#views.get(question).edit();
    return true;
  }

  /** What is written in editors of questions. */
  get written() {
    return [...this.#views.values()].map((view) => view.written).filter(Boolean);
  }

  /** Scrolls to a message and puts the focus on it; whether it is in the transcript. */
  reveal(id) {
    const index = this.#messages.findIndex((message) => message.id === id);
    if (index < 0) return false;
    this.#window.reach(index);
    const { root } = this.#views.get(this.#messages[index]);
    root.scrollIntoView({ block: "start" });
    root.focus({ preventScroll: true });
    return true;
  }

  /** Every string again, in the language of now. */
  refresh() {
    for (const view of this.#views.values()) view.refresh?.();
    for (const part of [...this.#switchers.values(), ...this.#links.values()]) part.refresh();
    this.#window.refresh();
    this.#rendered();
  }

  /** Takes away all but the first `count` messages. */
  #keep(count) {
    for (const message of this.#messages.slice(count)) {
      const view = this.#views.get(message);
      if (view === undefined) continue;
      view.dispose?.();
      view.root.remove();
      this.#views.delete(message);
      this.#switchers.delete(message);
      this.#links.delete(message);
    }
    this.#messages = this.#messages.slice(0, count);
  }

  #fill(messages) {
    const known = this.#messages.length;
    this.#messages = messages;
    // What is kept is on the page from some message on; where nothing is, begin at the end.
    const hasKept = this.#window.first < known;
    const first = hasKept ? this.#window.first : Math.max(0, messages.length - AT_ONCE);
    for (const message of messages.slice(hasKept ? known : first)) this.#root.append(this.#make(message).root);
    this.#window.begin(messages, first);
    this.#placeLine();
  }

  #make(message) {
    this.#isMaking = true;
    try {
      return this.#makeView(message);
    } finally {
      this.#isMaking = false;
    }
  }

  #makeView(message) {
    const isQuestion = message instanceof Question;
    const view = isQuestion
      ? new QuestionView(message, this.#actions)
      : new AnswerView(message, this.#questionOf(message), this.#actions, () => this.#rendered());
    const switcher = isQuestion
      ? view.switcher
      : new BranchSwitcher("answer", (direction) => this.#choose(message, direction));
    if (!isQuestion) this.#addBelow(view, message, switcher);
    switcher.update(this.#actions.versions(message));
    this.#views.set(message, view);
    if (message === this.#edited) this.#actions.editWaits?.watch(view.root);
    this.#switchers.set(message, switcher);
    return view;
  }

  #addBelow(view, message, switcher) {
    const links = new CarriedLinks((link) => this.#actions.openConversation(link));
    links.update(this.#actions.linksOf(message));
    this.#links.set(message, links);
    // A summary says what it is of before it begins.
    if (message.isSummary) view.root.querySelector(".summary-title").after(links.root);
    else view.root.append(links.root);
    view.root.append(switcher.root);
  }

  #questionOf(answer) {
    return this.#messages[this.#messages.indexOf(answer) - 1]?.text ?? "";
  }

  /** Shows another version; the focus stays at the switcher, and so does the reader. */
  #choose(message, direction) {
    const index = this.#messages.indexOf(message);
    this.#scrolling.stay();
    this.#turnTo(message, direction);
    const switcher = this.#switchers.get(this.#messages[index]);
    if (switcher === undefined) return;
    switcher.focus(direction);
    this.#actions.say?.(switcher.words);
  }

  /** What leads to other conversations may have changed. */
  updateLinks() {
    for (const [message, links] of this.#links) links.update(this.#actions.linksOf(message));
  }

  #updateSwitchers() {
    this.updateLinks();
    for (const [message, switcher] of this.#switchers) {
      this.#views.get(message).root.dataset.message = message.id ?? "";
      switcher.update(this.#actions.versions(message));
    }
  }

  #rendered() {
    if (this.#isMaking) return;
    this.#placeLine();
    this.#scrolling.follow();
  }

  #placeLine() {
    this.#line.place(this.#messages, (question) => this.#views.get(question)?.root);
  }
}
