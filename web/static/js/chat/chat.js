// The chat: which conversation is shown, what is asked in it, and which runs write into it.

import { api } from "../api.js";
import { Answer, Question } from "./messages.js";
import { newId } from "./outbox.js";

const TOO_LONG = new Set(["prompt_too_long", "message_too_long"]);

/**
 * A conversation as shown. `id` is null until its first question is accepted.
 */
class Conversation {
  constructor(id, course, messages = []) {
    this.id = id;
    this.course = course;
    this.messages = messages;
  }

  get newestAnswer() {
    return this.messages.findLast((message) => message instanceof Answer) ?? null;
  }

  get runningAnswer() {
    return this.messages.findLast((message) => message instanceof Answer && message.isRunning) ?? null;
  }
}

/**
 * Events: "show" (another conversation, or the same read again), "append" (detail: messages),
 * "running" (whether an answer runs has changed), "accepted" (detail: conversation id),
 * "ended" (detail: the answer), "returned" (detail: the text of a question that can only be asked
 * in other words).
 */
export class Chat extends EventTarget {
  #connection;
  #outbox;
  #runs;
  #loading = 0;
  /** Answers whose question is on its way: message id of the frame → {answer, conversation}. */
  #pending = new Map();
  #toCancel = new WeakSet();
  /** Conversations with something running, so that coming back to one finds it as it was. */
  #live = new Map();
  #channel = "BroadcastChannel" in window ? new BroadcastChannel("lectern") : null;
  conversation = new Conversation(null, null);

  constructor(connection, outbox, runs) {
    super();
    this.#connection = connection;
    this.#outbox = outbox;
    this.#runs = runs;
    connection.addEventListener("message", (event) => this.#receive(event.detail));
    connection.addEventListener("welcome", (event) => this.#welcome(event.detail));
    outbox.addEventListener("too-long", ({ detail }) =>
      this.#refused({ id: detail.id, code: "message_too_long", retryable: false }),
    );
    runs.addEventListener("end", (event) => this.#ended(event.detail));
    this.#channel?.addEventListener("message", ({ data }) => this.#otherTab(data));
  }

  get isRunning() {
    return this.conversation.runningAnswer !== null;
  }

  /** An empty conversation in a course. */
  startNew(course) {
    this.#loading += 1;
    this.#show(new Conversation(null, course));
    this.#restorePending();
  }

  /** Opens a stored conversation. Throws ApiError. */
  async open(id) {
    const loading = (this.#loading += 1);
    const live = this.#live.get(id);
    if (live !== undefined) {
      this.#show(live);
      return;
    }
    const stored = await api.conversation(id);
    if (loading !== this.#loading) return;
    this.#show(this.#fromStore(stored));
    this.#restorePending();
  }

  ask(text) {
    const { conversation } = this;
    if (this.isRunning) return;
    const message = { type: "ask", id: newId(), text };
    if (conversation.id === null) message.course = conversation.course;
    else Object.assign(message, { conversation: conversation.id, course: conversation.course });
    this.#expect(message, conversation);
    this.#outbox.send(message);
    this.#tell("running");
  }

  continueAnswer(answer) {
    if (this.isRunning || answer.id === null) return;
    const message = { type: "continue", id: newId(), message: answer.id };
    answer.beginContinuation();
    this.#pending.set(message.id, { answer, conversation: this.conversation });
    this.#outbox.send(message);
    this.#tell("running");
  }

  /** Asks again: a question that never arrived is sent again, another is answered anew. */
  retry(answer) {
    if (this.isRunning) return;
    const { conversation } = this;
    const question = conversation.messages[conversation.messages.indexOf(answer) - 1];
    if (question === undefined) return;
    const id = newId();
    let message = { type: "ask", id, text: question.text, course: conversation.course };
    if (answer.id !== null) message = { type: "regenerate", id, message: answer.id };
    else if (conversation.id !== null) message.conversation = conversation.id;
    answer.restart();
    this.#pending.set(id, { answer, conversation, question });
    this.#outbox.send(message);
    this.#tell("running");
  }

  /** Tells the server what its reader thinks of an answer; returns whether it could be sent. */
  judge(answer, value, note) {
    return this.#connection.send({ type: "feedback", id: newId(), message: answer.id, value, ...(note ? { note } : {}) });
  }

  stop() {
    const answer = this.conversation.runningAnswer;
    if (answer === null || answer.isStopping) return;
    answer.isStopping = true;
    answer.dispatchEvent(new CustomEvent("change", { detail: "all" }));
    if (!this.#runs.cancel(answer)) this.#toCancel.add(answer);
    this.#tell("running");
  }

  #expect(message, conversation) {
    const question = new Question({ text: message.text, key: message.id });
    const answer = new Answer();
    this.#pending.set(message.id, { answer, conversation, question });
    conversation.messages.push(question, answer);
    if (conversation === this.conversation) this.#tell("append", [question, answer]);
  }

  /** Questions that were on their way when the page was left belong into what is shown now. */
  #restorePending() {
    const { conversation } = this;
    for (const message of this.#outbox.messages) {
      if (this.#pending.has(message.id)) continue;
      if (message.type === "ask" && (message.conversation ?? null) === conversation.id) {
        this.#expect(message, conversation);
      } else if (message.type !== "ask") {
        const answer = conversation.messages.find(({ id }) => id === message.message);
        if (answer === undefined) continue;
        if (message.type === "continue" && !answer.isRunning) answer.beginContinuation();
        this.#pending.set(message.id, { answer, conversation });
      }
    }
    this.#tell("running");
  }

  #receive(event) {
    // Errors of a run are numbered like all its events; others answer a message of this page.
    if (event.type === "error" && event.seq === undefined) {
      this.#refused(event);
      return;
    }
    if (event.type === "accepted") this.#accepted(event);
    this.#runs.receive(event);
  }

  #accepted(event) {
    this.#outbox.settle(event.id);
    const pending = this.#pending.get(event.id);
    if (pending === undefined) return;
    this.#pending.delete(event.id);
    const { conversation, question } = pending;
    let { answer } = pending;
    // Stored already (the page was left just after asking): the stored pair is the one to show.
    const stored = conversation.messages.find(({ id }) => id === event.message);
    if (stored !== undefined && stored !== answer) {
      conversation.messages = conversation.messages.filter((message) => message !== answer && message !== question);
      answer = stored;
      if (conversation === this.conversation) this.#show(conversation);
    }
    if (question) question.id = event.user_message;
    const isNew = conversation.id === null;
    conversation.id = event.conversation;
    this.#live.set(conversation.id, conversation);
    if (this.#runs.answerOf(event.run) === undefined) this.#runs.adopt(event.run, answer);
    if (this.#toCancel.delete(answer)) this.#runs.cancel(answer);
    this.#channel?.postMessage({ conversation: conversation.id });
    if (conversation === this.conversation) this.#tell("accepted", { conversation: conversation.id, isNew });
  }

  /** A refused message, or a run that the server no longer knows. */
  #refused(event) {
    if (event.id === undefined || event.id === null) {
      if (event.code === "resume_gone" || event.code === "not_found") this.#reread();
      return;
    }
    this.#outbox.settle(event.id);
    const pending = this.#pending.get(event.id);
    if (pending === undefined) return;
    this.#pending.delete(event.id);
    if (pending.answer.base > 0) {
      // A Continue that was refused leaves the answer as it is stored.
      this.#reread();
      return;
    }
    pending.answer.fail(event);
    this.#tell("running");
    this.#return(pending.answer);
  }

  #welcome(message) {
    const shown = this.conversation;
    // Questions on their way are sent again now, and find their runs by themselves.
    if ([...this.#pending.values()].some(({ conversation }) => conversation === shown)) return;
    for (const active of message.active_runs ?? []) {
      if (active.conversation !== shown.id || this.#runs.answerOf(active.run) !== undefined) continue;
      const answer = shown.messages.find(({ id }) => id === active.message);
      if (answer === undefined) this.#reread();
      else this.#follow(active.run, answer);
    }
    // An answer that this page believes running, but no run writes, has ended meanwhile.
    const running = shown.runningAnswer;
    if (running !== null && this.#runs.runOf(running) === null) this.#reread();
  }

  #follow(run, answer) {
    if (!answer.isRunning) answer.beginReplay();
    this.#runs.attach(run, answer);
    this.#tell("running");
  }

  #ended({ answer }) {
    for (const [id, conversation] of this.#live) {
      if (conversation.messages.includes(answer) && conversation.runningAnswer === null) this.#live.delete(id);
    }
    this.#tell("running");
    this.#tell("ended", answer);
    this.#return(answer);
  }

  /** Who asked too long a question wants to shorten it, not to write it again. */
  #return(answer) {
    const { messages } = this.conversation;
    const question = messages[messages.indexOf(answer) - 1];
    if (question !== undefined && TOO_LONG.has(answer.error?.code)) this.#tell("returned", question.text);
  }

  /** The stored conversation is the truth: reads it again. */
  async #reread() {
    const { id } = this.conversation;
    if (id === null) return;
    this.#live.delete(id);
    for (const answer of this.conversation.messages) {
      const run = answer instanceof Answer ? this.#runs.runOf(answer) : null;
      if (run !== null) this.#runs.forget(run);
    }
    try {
      await this.open(id);
    } catch {
      // Offline again: the next welcome comes back to this.
    }
  }

  #otherTab({ conversation }) {
    if (conversation === this.conversation.id && !this.isRunning) this.#reread();
  }

  #fromStore(stored) {
    const messages = path(stored.messages).map((message) =>
      message.role === "user" ? new Question(message) : Answer.fromHistory(message),
    );
    const conversation = new Conversation(stored.id, stored.course, messages);
    if (stored.active_run) {
      const answer = conversation.runningAnswer ?? conversation.newestAnswer;
      if (answer !== null) {
        this.#live.set(stored.id, conversation);
        if (!answer.isRunning) answer.beginReplay();
        this.#runs.attach(stored.active_run, answer);
      }
    }
    return conversation;
  }

  #show(conversation) {
    this.conversation = conversation;
    this.#tell("show");
    this.#tell("running");
  }

  #tell(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** The branch that ends in the newest message, oldest first. */
function path(messages) {
  const byId = new Map(messages.map((message) => [message.id, message]));
  const branch = [];
  for (let at = messages.at(-1); at !== undefined; at = byId.get(at.parent)) {
    branch.unshift(at);
    byId.delete(at.id);
  }
  return branch;
}
