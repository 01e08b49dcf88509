// The chat: which conversation is shown, what is asked in it, and which runs write into it.

import { api } from "../api.js";
import { Conversation } from "./conversation.js";
import { LiveConversations } from "./live.js";
import { Answer } from "./messages.js";
import { newId } from "./outbox.js";
import { Peers } from "./peers.js";
import { Requests } from "./requests.js";
import { Sending } from "./sending.js";

const TOO_LONG = new Set(["prompt_too_long", "message_too_long"]);

/**
 * Events: "show" (another conversation), "append" (detail: messages that were added below what is
 * shown), "branch" (other messages of the conversation are shown, or some are known better now),
 * "running" (whether an answer runs has changed), "accepted" (detail: {conversation, isNew}),
 * "ended" (detail: the answer), "returned" (detail: the text of a question that can only be asked
 * in other words), "refused" (detail: {code, message} of a Continue or an undo that the server
 * refused; the answer is as it is stored), "renamed" (detail: {conversation, title}) and "gone"
 * (detail: {conversation}): the shown conversation has another title, or was deleted elsewhere.
 */
export class Chat extends EventTarget {
  #sending;
  #runs;
  #requests;
  #loading = 0;
  #toCancel = new WeakSet();
  #live;
  /** Runs that began elsewhere and whose conversation is being read again. */
  #arriving = new Set();
  #numWelcomes = 0;
  conversation = new Conversation(null, null);

  constructor(connection, outbox, runs, peers = new Peers(connection)) {
    super();
    this.#sending = new Sending(outbox);
    this.#runs = runs;
    this.#live = new LiveConversations(runs);
    this.#requests = new Requests(connection);
    this.peers = peers;
    connection.addEventListener("message", (event) => this.#receive(event.detail));
    connection.addEventListener("welcome", (event) => this.#welcome(event.detail));
    outbox.addEventListener("too-long", ({ detail }) =>
      this.#refused({ id: detail.id, code: "message_too_long", retryable: false }),
    );
    runs.addEventListener("end", (event) => this.#ended(event.detail));
    peers.addEventListener("opened", ({ detail }) => this.#openedElsewhere(detail));
    peers.addEventListener("changed", ({ detail }) => this.#changedElsewhere(detail));
    peers.addEventListener("deleted", ({ detail }) => this.#deletedElsewhere(detail));
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
    const conversation = Conversation.fromStore(stored);
    this.#live.follow(stored, conversation);
    this.#show(conversation);
    this.#restorePending();
  }

  /** Asks a question after what is shown. */
  ask(text) {
    const { conversation } = this;
    if (this.isRunning) return;
    const message = { type: "ask", id: newId(), text, course: conversation.course };
    if (conversation.id !== null) message.conversation = conversation.id;
    const parent = conversation.lastStored;
    if (parent !== null) message.parent = parent.id;
    this.#send(message, "append");
  }

  /** Asks a question in other words, as a branch beside it. */
  edit(question, text) {
    if (this.isRunning || text === question.text) return;
    const { conversation } = this;
    if (question.id !== null) {
      this.#send({ type: "edit", id: newId(), message: question.id, text }, "branch");
      return;
    }
    // It was never stored, so there is nothing to keep beside it.
    const answer = conversation.messages[conversation.messages.indexOf(question) + 1];
    if (answer === undefined) return;
    question.text = text;
    answer.request.text = text;
    this.#sendAgain(answer, question);
    this.#tell("branch");
  }

  /** Answers the question of `answer` once more, beside it. */
  regenerate(answer) {
    if (this.isRunning || answer.id === null) return;
    this.#send({ type: "regenerate", id: newId(), message: answer.id }, "branch");
  }

  /** After an error: what never arrived is sent again, another is answered anew. */
  retry(answer) {
    if (this.isRunning) return;
    if (answer.id !== null) this.regenerate(answer);
    else this.#sendAgain(answer, this.conversation.questionOf(answer));
  }

  /** Goes on with a cut answer; `maxTokens` is the limit of the new part, else that of before. */
  continueAnswer(answer, { maxTokens = null } = {}) {
    if (this.isRunning || answer.id === null) return;
    const options = maxTokens === null ? {} : { options: { max_tokens: maxTokens } };
    this.#send({ type: "continue", id: newId(), message: answer.id, ...options });
  }

  /** Takes back the last continuation of an answer. */
  undoSeam(answer) {
    if (this.isRunning || answer.id === null || answer.isUndoing) return;
    this.#send({ type: "undo", id: newId(), message: answer.id });
  }

  /** Begins a new conversation with a summary of this one, up to `answer`. */
  carryOn(answer) {
    if (this.isRunning || answer.id === null) return;
    const { course } = this.conversation;
    this.#loading += 1;
    this.#show(new Conversation(null, course));
    this.#send({ type: "carry", id: newId(), message: answer.id }, "append");
  }

  /** Shows the version before (-1) or after (1) a question or an answer. */
  choose(message, direction) {
    if (this.conversation.choose(message, direction) !== null) this.#tell("branch");
  }

  /** Shows the branch that a message is on; whether it is in this conversation. */
  turnTo(id) {
    if (this.conversation.get(id) === undefined) return false;
    if (this.conversation.turnTo(id)) this.#tell("branch");
    return true;
  }

  /** Where a message stands among its versions: {index, total, previous, next}. */
  versions(message) {
    return this.conversation.versions(message);
  }

  /** Somebody else is here now: what was on its way for another person is not sent. */
  forgetUnsent() {
    this.#sending.clear();
  }

  stop() {
    const answer = this.conversation.runningAnswer;
    if (answer === null || answer.isStopping) return;
    answer.isStopping = true;
    answer.touch();
    if (!this.#runs.cancel(answer)) this.#toCancel.add(answer);
    this.#tell("running");
  }

  /** Tells the server what its reader thinks of an answer: a promise of whether that is stored. */
  async judge(answer, value, note = null) {
    const message = { type: "feedback", message: answer.id, value, ...(note ? { note } : {}) };
    const reply = await this.#requests.send(message);
    if (reply?.type !== "done") return false;
    answer.feedback = value === "none" ? null : { value, note };
    return true;
  }

  /**
   * How much of the model's window a question would take: a promise of {tokens, room, window}, or
   * of null where the server has not said (offline, or a later text is counted in its place).
   */
  async count(text) {
    const { id } = this.conversation;
    const reply = await this.#requests.send({ type: "count", text, ...(id === null ? {} : { conversation: id }) });
    return reply?.type === "counted" ? { tokens: reply.tokens, room: reply.room, window: reply.window } : null;
  }

  #send(message, event = null) {
    const { conversation } = this;
    const made = conversation.expect(message);
    if (made === null) return;
    if (event !== null) this.#tell(event, event === "append" ? [made.question, made.answer].filter(Boolean) : null);
    this.#sending.send({ ...made, message, conversation });
    this.#tell("running");
  }

  /** Sends once more what the server has refused, under another id: the old one is answered. */
  #sendAgain(answer, question) {
    const message = { ...answer.request, id: newId() };
    answer.request = message;
    answer.restart();
    this.#sending.send({ answer, question, message, conversation: this.conversation });
    this.#tell("running");
  }

  /** What was on its way when the page was left belongs into what is shown now. */
  #restorePending() {
    const { conversation } = this;
    let hasMade = false;
    for (const message of this.#sending.left) {
      // Of those that are to begin a conversation, each begins another one.
      if (hasMade && conversation.id === null) break;
      const made = conversation.expect(message);
      if (made === null) continue;
      hasMade = true;
      this.#sending.expect({ ...made, message, conversation });
    }
    if (hasMade) this.#tell("branch");
    this.#tell("running");
  }

  #receive(event) {
    if (event.seq === undefined) {
      // Events of a run are numbered; the others answer a message of this page.
      if (this.#requests.receive(event)) return;
      if (event.type === "error") this.#refused(event);
      else if (event.type === "done") this.#done(event);
      return;
    }
    if (event.type === "accepted") this.#accepted(event);
    this.#runs.receive(event);
  }

  #accepted(event) {
    const pending = this.#sending.take(event.id);
    if (pending === undefined) return;
    const { conversation } = pending;
    const isNew = conversation.id === null;
    const answer = conversation.accept(pending, event);
    this.#live.keep(conversation);
    if (this.#runs.answerOf(event.run) === undefined) this.#runs.adopt(event.run, answer);
    if (this.#toCancel.delete(pending.answer)) this.#runs.cancel(answer);
    this.peers.announce({ run: event.run, conversation: conversation.id, message: event.message, title: conversation.title });
    if (conversation !== this.conversation) return;
    this.#tell("branch");
    this.#tell("accepted", { conversation: conversation.id, isNew });
  }

  /** An undo is stored. */
  #done(event) {
    const pending = this.#sending.take(event.id);
    if (pending === undefined || event.message === undefined) return;
    pending.answer.takeOver(Answer.fromHistory(event.message));
    this.#tell("running");
  }

  /** A refused message, or a run that the server no longer knows. */
  #refused(event) {
    if (event.id === undefined || event.id === null) {
      if (event.code === "resume_gone" || event.code === "not_found") this.#lose(event.run);
      return;
    }
    const pending = this.#sending.take(event.id);
    if (pending === undefined) return;
    const { answer, message, conversation } = pending;
    if (message.type === "continue" || message.type === "undo") {
      answer.isUndoing = false;
      this.#reread(conversation);
      if (conversation === this.conversation) this.#tell("refused", event);
      return;
    }
    answer.fail(event);
    // What it is busy with began elsewhere.
    if (event.code === "conversation_busy") this.#reread(conversation);
    this.#tell("running");
    this.#return(answer);
  }

  #welcome({ active_runs: active = [] }) {
    this.#numWelcomes += 1;
    const shown = this.conversation;
    // What is on its way is sent again now, and finds its run by itself.
    if (this.#sending.isInto(shown)) return;
    let isStale = false;
    for (const { run, conversation, message } of active) {
      if (conversation !== shown.id || this.#runs.answerOf(run) !== undefined) continue;
      const answer = shown.get(message);
      if (answer?.isRunning) this.#live.followRun(run, answer);
      else isStale = true;
    }
    // An answer that this page believes running, but no run writes, has ended meanwhile.
    const running = shown.runningAnswer;
    if (running !== null) isStale ||= this.#runs.runOf(running) === null;
    // What happened elsewhere while nobody could tell this page.
    else isStale ||= this.#numWelcomes > 1;
    if (isStale) this.#reread();
  }

  /** The server does not know a run (any more): what is stored is the truth. */
  #lose(run) {
    const conversation = this.#live.lose(run);
    if (conversation === undefined || conversation === this.conversation) this.#reread();
  }

  #ended({ answer }) {
    this.#live.ended(answer);
    // One that failed without a word is no version any more.
    if (this.conversation.has(answer) && answer.state === "error") this.#tell("branch");
    this.#tell("running");
    this.#tell("ended", answer);
    this.#return(answer);
  }

  /** Who asked too long a question wants to shorten it, not to write it again. */
  #return(answer) {
    const question = this.conversation.has(answer) ? this.conversation.questionOf(answer) : null;
    if (question !== null && TOO_LONG.has(answer.error?.code)) this.#tell("returned", question.text);
  }

  /** The stored conversation is the truth: reads it again. */
  async #reread(conversation = this.conversation) {
    const { id } = conversation;
    if (id === null || this.#sending.isInto(conversation)) return;
    const { numSent } = this.#sending;
    let stored;
    try {
      stored = await api.conversation(id);
    } catch (error) {
      // Offline again: the next welcome comes back to this.
      if (error.status === 404) this.#deletedElsewhere({ conversation: id });
      return;
    }
    if (numSent !== this.#sending.numSent) {
      // It may lack what was sent meanwhile.
      await this.#reread(conversation);
      return;
    }
    this.#live.drop(id);
    this.#live.unfollow(conversation);
    conversation.merge(stored);
    this.#live.follow(stored, conversation);
    if (conversation !== this.conversation) return;
    this.#tell("branch");
    this.#tell("running");
  }

  async #openedElsewhere({ run, conversation, title }) {
    if (this.#runs.answerOf(run) !== undefined || this.#arriving.has(run)) return;
    if (conversation !== this.conversation.id) {
      this.#live.drop(conversation);
      return;
    }
    this.conversation.title ??= title;
    this.#arriving.add(run);
    await this.#reread();
    this.#arriving.delete(run);
  }

  #changedElsewhere({ conversation, title }) {
    if (conversation !== this.conversation.id) {
      this.#live.drop(conversation);
      return;
    }
    const known = this.conversation.title;
    if (title !== known) {
      this.conversation.title = title;
      this.#tell("renamed", { conversation, title });
    }
    // Where it has no other title, something else has changed.
    if ((title === known || known === null) && !this.isRunning) this.#reread();
  }

  #deletedElsewhere({ conversation }) {
    this.#live.drop(conversation);
    if (conversation === this.conversation.id) this.#tell("gone", { conversation });
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
