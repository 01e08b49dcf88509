// One conversation: its messages with all branches, and the branch that is shown.

import { Answer, Question } from "./messages.js";
import { MessageTree, keyOf } from "./tree.js";
import { keep, kept } from "../preferences.js";

const CHOICES = "lectern.leaf.";

/**
 * `id` is null until the first question is accepted, `title` null while nobody has told it.
 * `carriedFrom` is what its summary is of, null where it carries nothing on, and `carriedTo` what
 * carries it on, each {message: the answer up to which the summary goes, conversation: id, title};
 * the last two are null where that is no more.
 * Which branch is shown is this tab's own: the newest one, until its reader has chosen another.
 */
export class Conversation {
  #tree;
  #leaf;
  /** Key of a fork (null: the beginnings) → key of the message that was chosen there. */
  #choices;
  #path = null;

  constructor(id, course, { title = null, messages = [], carriedFrom = null, carriedTo = [] } = {}) {
    this.id = id;
    this.course = course;
    this.title = title;
    this.carriedFrom = carriedFrom;
    this.carriedTo = carriedTo;
    this.#tree = MessageTree.of(messages);
    this.#choices = new Map(id === null ? [] : JSON.parse(kept("sessionStorage", CHOICES + id) ?? "[]"));
    this.#leaf = this.#tree.leafFrom(null, this.#choices);
  }

  /** A conversation as the API tells it. */
  static fromStore({ id, course, title, messages, carried_from: carriedFrom, carried_to: carriedTo }) {
    return new Conversation(id, course, { title, messages: messages.map(fromStore), carriedFrom, carriedTo });
  }

  /** The shown branch, oldest message first. */
  get messages() {
    this.#path ??= this.#tree.path(this.#leaf);
    return this.#path;
  }

  /** The newest answer of the shown branch, or null. */
  get newestAnswer() {
    return this.messages.findLast((message) => message instanceof Answer) ?? null;
  }

  /** What is being answered, on whichever branch: a conversation has one at a time. */
  get runningAnswer() {
    const isRunning = (message) => message instanceof Answer && message.isRunning;
    return this.messages.findLast(isRunning) ?? this.#tree.all().find(isRunning) ?? null;
  }

  /** Whether the last continuation of one of its answers is being taken back. */
  get isUndoing() {
    return this.#tree.all().some((message) => message instanceof Answer && message.isUndoing);
  }

  /** The conversations that a message leads to: {before: what a summary is of, or null, after: what
   * carries on from an answer}. */
  linksOf(message) {
    const before = message.isSummary ? this.carriedFrom : null;
    return { before, after: this.carriedTo.filter((link) => message.id !== null && link.message === message.id) };
  }

  /** Another conversation has another title, or is no more (null); whether this one leads to it. */
  renameLink(id, title) {
    const links = [this.carriedFrom, ...this.carriedTo].filter((link) => link?.conversation === id);
    for (const link of links) Object.assign(link, { title, conversation: title === null ? null : id });
    this.carriedTo = this.carriedTo.filter(({ conversation }) => conversation !== null);
    return links.length > 0;
  }

  get(key) {
    return this.#tree.get(key);
  }

  has(message) {
    return this.#tree.has(message);
  }

  /** The question of an answer; null for a summary. */
  questionOf(answer) {
    return this.#tree.get(answer.parent) ?? null;
  }

  /** What the next question is to follow: the last answer of the shown branch that is stored. */
  get lastStored() {
    return this.messages.findLast((message) => message instanceof Answer && message.id !== null) ?? null;
  }

  /** Questions of the shown branch that the server has not taken yet. */
  get unsentTexts() {
    return this.messages.filter((message) => message instanceof Question && message.id === null).map(({ text }) => text);
  }

  /** Whether it holds a question, or is to begin with a summary, that the server has not taken. */
  get hasUnsent() {
    return this.#tree.all().some((message) => message.id === null && (message instanceof Question || message.isSummary));
  }

  /** Answers to what the server has refused. */
  get refused() {
    return this.#tree.all().filter((message) => message instanceof Answer && message.isRefused);
  }

  get isEmpty() {
    return this.#tree.size === 0;
  }

  /** Gives up what the server has refused. What was asked behind it stays, in its place. */
  discard(answer) {
    const question = this.questionOf(answer);
    const parent = (question ?? answer).parent ?? null;
    const isEnd = this.#leaf === keyOf(answer);
    const left = this.#tree.all().filter((message) => message !== answer && message !== question);
    for (const message of left) if (message.parent === keyOf(answer)) message.parent = parent;
    this.#tree = MessageTree.of(left);
    this.#show(isEnd ? this.#tree.leafFrom(parent, this.#choices) : this.#leaf);
  }

  /** A question that the server has refused is to be asked behind all that is shown. */
  moveToEnd(answer) {
    const question = this.questionOf(answer);
    if (question === null || this.messages.at(-1) === answer) return;
    this.discard(answer);
    this.#append(question, answer);
  }

  /** As `expect`, of what was refused. A question stands at the end of what is shown, whatever has
   * been asked since it was, and is no branch of its own. */
  expectRefused(message) {
    if (message.type !== "ask") return this.expect(message);
    if ((message.conversation ?? null) !== this.id) return null;
    const question = new Question({ text: message.text, key: message.id });
    const answer = new Answer({ key: `${message.id}.answer`, parent: message.id });
    answer.request = message;
    this.#append(question, answer);
    return { question, answer };
  }

  /** Its reader is at work on a message that is shown: no newer branch takes its place. */
  hold(message) {
    let fork = null;
    for (const shown of this.messages) {
      this.#choices.set(fork, keyOf(shown));
      if (shown === message) break;
      fork = keyOf(shown);
    }
    this.#keepChoices();
  }

  /** {index, total, previous, next} of a message among its versions. */
  versions(message) {
    return this.#tree.siblings(keyOf(message));
  }

  /** Shows the version before (-1) or after (1) this one; returns its message, or null. */
  choose(message, direction) {
    const { previous, next } = this.versions(message);
    const key = direction < 0 ? previous : next;
    if (key === null) return null;
    this.#turnTo(key, { isChoice: true });
    return this.#tree.get(key);
  }

  /** Shows the branch that a message is on; false where it was shown already. */
  turnTo(id) {
    if (this.messages.some((message) => message.id === id)) return false;
    this.#turnTo(id, { isChoice: true });
    return true;
  }

  /**
   * Shows what a message that is about to be sent will make: {answer, question}, the second null
   * where it makes none. Null: it does not belong here.
   */
  expect(message) {
    const made = this.#make(message);
    if (made === null) return null;
    const { answer, question } = made;
    answer.request = message;
    if (question) this.#tree.add(question);
    if (!this.#tree.has(answer)) {
      answer.began();
      this.#tree.add(answer);
      this.#turnTo(keyOf(answer), { isChoice: false });
    }
    return made;
  }

  /** The server has accepted what `expect` made; returns the answer that its run writes. */
  accept({ answer, question, message }, event) {
    this.id = event.conversation;
    const stored = this.#tree.get(event.message);
    if (stored !== undefined && stored !== answer) {
      // Stored already (the page was left just after asking): the stored pair is the one to show.
      this.#tree.remove(keyOf(question ?? answer));
      this.#turnTo(event.message, { isChoice: false });
      return stored;
    }
    if (question !== null && question.id === null) this.#nameQuestion(question, answer, event);
    if (answer.id === null) this.#name(answer, event.message);
    const { parent = null } = event;
    if (question !== null && message.type === "ask" && !message.parent && this.#tree.get(parent)) {
      if (question.parent !== parent) this.#move(question, answer, parent);
    }
    this.#keepChoices();
    return answer;
  }

  /** Takes over what is stored. Messages that are known keep their objects. */
  merge(stored) {
    const refused = this.refused.filter(({ request }) => request.type === "ask").map((answer) => ({ question: this.questionOf(answer), answer }));
    for (const { answer } of refused) this.discard(answer);
    const unsent = this.#tree.all().filter(({ id }) => id === null);
    const messages = stored.messages.map((message) => {
      const known = this.#tree.get(message.id);
      if (known === undefined) return fromStore(message);
      if (known instanceof Question) Object.assign(known, fromStore(message), { key: known.key });
      else {
        // It is being taken back until the server has answered that, whatever is read meanwhile.
        const { isUndoing } = known;
        known.takeOver(Answer.fromHistory(message));
        known.isUndoing = isUndoing;
      }
      return known;
    });
    this.title = stored.title ?? this.title;
    this.course = stored.course;
    this.carriedFrom = stored.carried_from ?? this.carriedFrom;
    this.carriedTo = stored.carried_to ?? this.carriedTo;
    this.#tree = MessageTree.of([...messages, ...unsent]);
    this.#show(this.#tree.leafFrom(null, this.#choices));
    for (const { question, answer } of refused) this.#append(question, answer);
  }

  /** Puts a question that is not stored behind what is shown. */
  #append(question, answer) {
    question.parent = this.#leaf;
    this.#tree.add(question);
    this.#tree.add(answer);
    this.#show(keyOf(answer));
  }

  #make(message) {
    const about = this.#tree.get(message.message);
    const answerOf = (question) => new Answer({ key: `${message.id}.answer`, parent: keyOf(question) });
    switch (message.type) {
      case "ask": {
        if ((message.conversation ?? null) !== this.id) return null;
        const last = this.#tree.get(message.parent) && !this.#isFailedEnd ? message.parent : this.#leaf;
        const question = new Question({ text: message.text, key: message.id, parent: last });
        return { question, answer: answerOf(question) };
      }
      case "edit": {
        if (!(about instanceof Question)) return null;
        const question = new Question({ text: message.text, key: message.id, parent: about.parent });
        return { question, answer: answerOf(question) };
      }
      case "regenerate":
        if (!(about instanceof Answer)) return null;
        return { question: null, answer: new Answer({ key: message.id, parent: about.parent }) };
      case "continue":
        if (!(about instanceof Answer)) return null;
        if (!about.isRunning) about.beginContinuation();
        return { question: null, answer: about };
      case "undo":
        if (!(about instanceof Answer)) return null;
        about.isUndoing = true;
        about.touch();
        return { question: null, answer: about };
      case "carry":
        if (this.id !== null || this.#tree.size > 0) return null;
        return { question: null, answer: new Answer({ key: message.id, isSummary: true, carriedFrom: message.message }) };
      default:
        return null;
    }
  }

  /** Whether the shown branch ends in something that the server has refused. */
  get #isFailedEnd() {
    return this.messages.at(-1)?.id === null;
  }

  #nameQuestion(question, answer, event) {
    if (this.#tree.get(event.user_message) === undefined) {
      this.#name(question, event.user_message);
      return;
    }
    // The question is stored, its answer is another one: the server has answered it once more.
    this.#move(question, answer, event.user_message);
  }

  /** Hangs a question with its answer (or, where it is stored, the answer alone) below `parent`. */
  #move(question, answer, parent) {
    const isStored = this.#tree.get(parent) instanceof Question;
    this.#tree.remove(keyOf(question));
    if (!isStored) {
      question.parent = parent;
      this.#tree.add(question);
    }
    answer.parent = isStored ? parent : keyOf(question);
    this.#tree.add(answer);
    this.#turnTo(keyOf(answer), { isChoice: false });
  }

  #name(message, id) {
    const old = keyOf(message);
    message.id = id;
    this.#tree.replace(old, message);
    if (this.#leaf === old) this.#leaf = id;
    for (const [fork, child] of [...this.#choices]) {
      if (fork === old) {
        this.#choices.delete(fork);
        this.#choices.set(id, child);
      } else if (child === old) this.#choices.set(fork, id);
    }
    this.#path = null;
  }

  /**
   * Shows the branch that a message is on. A branch that its reader has chosen is remembered at
   * each fork; one that something new is on is the newest, and stays shown only while it is.
   */
  #turnTo(key, { isChoice }) {
    const path = this.#tree.path(this.#tree.leafFrom(key, this.#choices));
    let fork = null;
    for (const message of path) {
      const own = keyOf(message);
      if (!isChoice) this.#choices.delete(fork);
      else if (this.#tree.siblings(own).total > 1) this.#choices.set(fork, own);
      fork = own;
    }
    this.#show(fork);
    this.#keepChoices();
  }

  #show(leaf) {
    this.#leaf = leaf;
    this.#path = null;
  }

  #keepChoices() {
    if (this.id === null) return;
    const choices = [...this.#choices].filter(([fork, child]) => this.#isStored(child) && (fork === null || this.#isStored(fork)));
    keep("sessionStorage", CHOICES + this.id, choices.length > 0 ? JSON.stringify(choices) : null);
  }

  #isStored(key) {
    return (this.#tree.get(key)?.id ?? null) !== null;
  }
}

function fromStore(message) {
  return message.role === "user" ? new Question(message) : Answer.fromHistory(message);
}
