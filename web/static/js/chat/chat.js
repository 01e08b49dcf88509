// The chat: which conversation is shown, what is asked in it, and which runs write into it.

import { api } from "../api.js";
import { Conversation } from "./conversation.js";
import { Elsewhere } from "./elsewhere.js";
import { errorOf } from "./folds.js";
import { LiveConversations } from "./live.js";
import { Answer, MAKES_NEW } from "./messages.js";
import { newId } from "./outbox.js";
import { Peers } from "./peers.js";
import { Refused } from "./refused.js";
import { Requests } from "./requests.js";
import { Sending } from "./sending.js";
import { UnsentConversations } from "./unsent.js";

const TOO_LONG = new Set(["prompt_too_long", "message_too_long"]);

/**
 * Events: "show" (another conversation), "append" (detail: messages that were added below what is
 * shown), "branch" (other messages of the conversation are shown, or some are known better now),
 * "running" (whether an answer runs has changed), "accepted" (detail: {conversation, isNew}),
 * "begun" (detail: the id of a conversation that has begun without being shown), "carry" (an empty
 * conversation is shown, for the summary of the one before), "ended" (detail: the answer),
 * "returned" (detail: the text of a question that can only be asked in other words), "unasked"
 * (detail: {question, text}: an edit that was refused before a reload), "refused"
 * (detail: {code, message} of what the server refused although the answer is there: it is as it is
 * stored) and "gone" (detail: {conversation}): the shown conversation was deleted elsewhere.
 */
export class Chat extends EventTarget {
  #sending;
  #refusedOnes = new Refused();
  #runs;
  #requests;
  #loading = 0;
  #live;
  #unsent = new UnsentConversations();
  #elsewhere;
  conversation = new Conversation(null, null);

  constructor(connection, outbox, runs, peers = new Peers(connection)) {
    super();
    this.#sending = new Sending(outbox);
    this.#runs = runs;
    this.#live = new LiveConversations(runs);
    this.#requests = new Requests(connection);
    this.peers = peers;
    connection.addEventListener("message", (event) => this.#receive(event.detail));
    outbox.addEventListener("too-long", ({ detail }) =>
      this.#refused({ id: detail.id, code: "message_too_long", retryable: false }),
    );
    runs.addEventListener("end", (event) => this.#ended(event.detail));
    this.#elsewhere = this.#watchElsewhere(connection);
  }

  get isRunning() {
    return this.conversation.runningAnswer !== null;
  }

  /** Whether nothing can be done with answers: one runs, or one is being taken back. */
  get isBusy() {
    return this.isRunning || this.conversation.isUndoing;
  }

  /** An empty conversation in a course. */
  startNew(course) {
    this.#loading += 1;
    this.#show(new Conversation(null, course));
    this.#restorePending();
  }

  /**
   * Opens a stored conversation: a promise of whether it is shown, false where another one was
   * opened meanwhile. Throws ApiError, while it is still wanted.
   */
  async open(id) {
    const loading = (this.#loading += 1);
    const live = this.#live.get(id);
    const known = live ?? this.#unsent.get(id);
    if (known !== undefined) {
      this.#show(known);
      // Nobody has told what became of it meanwhile.
      if (live === undefined) this.#elsewhere.reread(known);
      return true;
    }
    let stored;
    try {
      stored = await api.conversation(id);
    } catch (error) {
      if (error.status === 404) this.#refusedOnes.detach(id);
      if (loading !== this.#loading) return false;
      throw error;
    }
    if (loading !== this.#loading) return false;
    const conversation = Conversation.fromStore(stored);
    this.#live.follow(stored, conversation);
    this.#show(conversation);
    this.#restorePending();
    return true;
  }

  /**
   * What no server knows of, besides what is shown: the conversations that are to begin with it, the
   * latest first, each {key, text: of the question, null: it is a summary, isRefused, isAlone: nothing
   * else was refused in it}.
   */
  get unsent() {
    const others = this.#unsent.begun.filter((conversation) => conversation !== this.conversation);
    return others.map((conversation) => {
      const [{ key, text, isSummary }] = conversation.messages;
      const isRefused = conversation.runningAnswer === null;
      return { key, text: isSummary ? null : text, isRefused, isAlone: conversation.refused.length === 1 };
    });
  }

  /** Shows one of `unsent`. */
  openUnsent(key) {
    const conversation = this.#begun(key);
    if (conversation === undefined) return;
    this.#loading += 1;
    this.#show(conversation);
  }

  /** Forgets one of `unsent` that was refused. */
  discardUnsent(key) {
    const conversation = this.#begun(key);
    if (conversation === undefined || conversation.runningAnswer !== null) return;
    this.#unsent.drop(conversation);
    for (const { request } of conversation.refused) this.#refusedOnes.forget(request);
    this.#tell("running");
  }

  /** Gives up a shown question that was refused; whether it was. */
  discard(answer) {
    const { conversation } = this;
    if (!answer.isRefused || !conversation.has(answer)) return false;
    this.#refusedOnes.forget(answer.request);
    conversation.discard(answer);
    this.#unsent.settle(conversation);
    this.#tell("branch");
    this.#tell("running");
    return true;
  }

  /** What is being opened is not wanted any more. */
  stay() {
    this.#loading += 1;
  }

  /** Asks a question after what is shown. */
  ask(text) {
    const { conversation } = this;
    if (this.isRunning) return;
    this.#send(questionIn(conversation, text), "append");
  }

  /** Asks a question in other words, as a branch beside it. */
  edit(question, written) {
    const text = written.toWellFormed();
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
    if (this.isBusy || answer.id === null) return;
    this.#send({ type: "regenerate", id: newId(), message: answer.id }, "branch");
  }

  /** After an error: what never arrived is sent again, another is answered anew. */
  retry(answer) {
    if (this.isBusy) return;
    if (answer.id !== null) this.regenerate(answer);
    else this.#sendAgain(answer, this.conversation.questionOf(answer));
  }

  /** Goes on with a cut answer; `maxTokens` is the limit of the new part, else that of before. */
  continueAnswer(answer, { maxTokens = null } = {}) {
    if (this.isBusy || answer.id === null) return;
    const options = maxTokens === null ? {} : { options: { max_tokens: maxTokens } };
    this.#send({ type: "continue", id: newId(), message: answer.id, ...options });
  }

  /** Takes back the last continuation of an answer. */
  undoSeam(answer) {
    if (this.isBusy || answer.id === null) return;
    this.#send({ type: "undo", id: newId(), message: answer.id });
  }

  /** Begins a new conversation with a summary of this one, up to `answer`. */
  carryOn(answer) {
    if (this.isBusy || answer.id === null) return;
    const { id, course, title } = this.conversation;
    this.#loading += 1;
    this.#show(new Conversation(null, course, { carriedFrom: { message: answer.id, conversation: id, title } }));
    this.#tell("carry");
    this.#send({ type: "carry", id: newId(), message: answer.id }, "append");
  }

  /** Shows the version before (-1) or after (1) a question or an answer. */
  choose(message, direction) {
    if (this.conversation.choose(message, direction) !== null) this.#tell("branch");
  }

  /** Keeps the branch of a message that is being worked on, whatever is written elsewhere. */
  hold(message) {
    this.conversation.hold(message);
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
    this.#refusedOnes.clear();
    this.#unsent.clear();
  }

  stop() {
    const answer = this.conversation.runningAnswer;
    if (answer === null || answer.isStopping) return;
    answer.isStopping = true;
    answer.touch();
    // Where it cannot be told now, it is when the run is known, or the connection is back.
    this.#runs.cancel(answer);
    this.#tell("running");
  }

  /** Tells the server what its reader thinks of an answer: a promise of whether that is stored. */
  async judge(answer, value, note = null) {
    const words = note?.toWellFormed();
    const message = { type: "feedback", message: answer.id, value, ...(words ? { note: words } : {}) };
    const reply = await this.#requests.send(message);
    if (reply?.type !== "done") return false;
    answer.feedback = value === "none" ? null : { value, note };
    return true;
  }

  /**
   * How much of the model's window a question would take: a promise of {tokens, atLeast, room,
   * window}, or of null where the server has not said (offline, or a later text is counted in its
   * place). `atLeast`: the text is so long that the server has counted only a part of it.
   */
  async count(text) {
    const { id } = this.conversation;
    const message = { type: "count", text: text.toWellFormed(), ...(id === null ? {} : { conversation: id }) };
    const reply = await this.#requests.send(message);
    if (reply?.type !== "counted") return null;
    const { tokens, room, window, at_least: atLeast = false } = reply;
    return { tokens, atLeast, room, window };
  }

  #begun(key) {
    return this.#unsent.begun.find(({ messages: [first] }) => first.key === key);
  }

  #send(message, event = null) {
    const { conversation } = this;
    const made = conversation.expect(message);
    if (made === null) return;
    this.#unsent.keep(conversation);
    if (event !== null) this.#tell(event, event === "append" ? [made.question, made.answer].filter(Boolean) : null);
    this.#sending.send({ ...made, message, conversation });
    this.#tell("running");
  }

  /** Sends once more what the server has refused, under another id: the old one is answered. */
  #sendAgain(answer, question) {
    const { conversation } = this;
    const isQuestion = answer.request.type === "ask";
    // Others may have been asked since, which have begun the conversation.
    if (isQuestion) conversation.moveToEnd(answer);
    const message = isQuestion ? questionIn(conversation, question.text) : { ...answer.request, id: newId() };
    this.#refusedOnes.forget(answer.request);
    answer.request = message;
    answer.restart();
    this.#unsent.keep(conversation);
    this.#tell("branch");
    this.#sending.send({ answer, question, message, conversation });
    this.#tell("running");
  }

  /**
   * What was on its way, or had been refused, when the page was left belongs into what is shown now,
   * or begins another conversation.
   */
  #restorePending() {
    const { conversation } = this;
    let hasMade = false;
    const restore = (message, make) => {
      const isHere = !isBeginning(message) || (conversation.id === null && !hasMade && (message.course ?? conversation.course) === conversation.course);
      const into = isHere ? conversation : new Conversation(null, message.course ?? conversation.course);
      const made = make(into);
      if (made === null) return null;
      hasMade ||= isHere;
      this.#unsent.keep(into);
      return { ...made, message, conversation: into };
    };
    const restoreRefused = (isWanted) =>
      this.#refusedOnes.restore((message, error) => {
        if (!isWanted(message)) return false;
        if (message.type === "edit") return this.#giveBack(message);
        const entry = restore(message, (into) => into.expectRefused(message));
        entry?.answer.fail(error);
        return entry !== null;
      });
    restoreRefused((message) => !isBeginning(message));
    for (const message of this.#sending.left) {
      const entry = restore(message, (into) => into.expect(message));
      if (entry !== null) this.#sending.expect(entry);
    }
    // What is on its way is what its reader waits for.
    restoreRefused(isBeginning);
    if (hasMade) this.#tell("branch");
    this.#tell("running");
  }

  /** An edit that was refused is a draft again; whether its question is shown here. */
  #giveBack({ id, message, text }) {
    const question = this.conversation.get(message);
    if (question === undefined) return false;
    this.#refusedOnes.forget({ id });
    this.#tell("unasked", { question, text });
    return true;
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
    else if (event.type === "error" && event.seq === 1) {
      this.#unaccepted(event);
      return;
    }
    this.#runs.receive(event);
  }

  /** A run has failed before it was accepted: it wrote no answer, whoever followed it already. */
  #unaccepted(event) {
    if (this.#runs.answerOf(event.run) !== undefined) this.#elsewhere.lose(event.run);
    this.#refused(event);
  }

  #accepted(event) {
    const pending = this.#sending.take(event.id);
    if (pending === undefined) {
      // What an earlier page had left on its way, and this one does not show.
      if (event.conversation !== this.conversation.id) this.#tell("begun", event.conversation);
      return;
    }
    const { conversation } = pending;
    const isNew = conversation.id === null;
    const answer = conversation.accept(pending, event);
    this.#unsent.settle(conversation);
    // It had ended before this page heard of it: all of it is told once more.
    if (answer !== pending.answer && !answer.isRunning) answer.beginAnew();
    if (isNew) this.#gather(conversation);
    this.#live.keep(conversation);
    if (this.#runs.answerOf(event.run) === undefined) this.#runs.adopt(event.run, answer);
    if (pending.answer.isStopping) {
      answer.isStopping = true;
      this.#runs.cancel(answer);
    }
    this.peers.announce({ run: event.run, conversation: conversation.id, message: event.message, title: conversation.title });
    if (conversation !== this.conversation) {
      if (isNew) this.#tell("begun", conversation.id);
      return;
    }
    this.#tell("branch");
    this.#tell("accepted", { conversation: conversation.id, isNew });
  }

  /** What was refused in a conversation before it had an id belongs into it. */
  #gather(conversation) {
    for (const { request, error } of conversation.refused) {
      if (request.type !== "ask") continue;
      request.conversation = conversation.id;
      this.#refusedOnes.keep(request, error);
    }
  }

  /** An undo is stored. */
  #done(event) {
    const pending = this.#sending.take(event.id);
    if (pending === undefined || event.message === undefined) return;
    pending.answer.takeOver(Answer.fromHistory(event.message));
    this.#unsent.settle(pending.conversation);
    this.#elsewhere.catchUp(pending.conversation);
    this.#tell("running");
  }

  /** A refused message, or a run that the server no longer knows. */
  #refused(event) {
    if (event.id === undefined || event.id === null) {
      if (event.code === "resume_gone" || event.code === "not_found") this.#elsewhere.lose(event.run);
      return;
    }
    const left = this.#sending.left.find(({ id }) => id === event.id);
    const pending = this.#sending.take(event.id);
    if (pending === undefined) {
      if (MAKES_NEW.has(left?.type)) this.#refusedOnes.leave(left, errorOf(event));
      return;
    }
    const { answer, message, conversation } = pending;
    this.#unsent.settle(conversation);
    if (message.type === "continue" || message.type === "undo") {
      answer.isUndoing = false;
      answer.touch();
      this.#elsewhere.reread(conversation);
      if (conversation === this.conversation) this.#tell("refused", event);
      return;
    }
    answer.fail(event);
    // The text of one that is too long goes back to the box, which keeps it.
    if (answer.isRefused && !TOO_LONG.has(event.code)) this.#refusedOnes.keep(message, errorOf(event));
    // What it is busy with began elsewhere.
    if (event.code === "conversation_busy") {
      this.#elsewhere.reread(conversation);
      // One that failed without a word is no version: it goes, and its words with it.
      if (message.type === "regenerate" && conversation === this.conversation) this.#tell("refused", event);
    } else this.#elsewhere.catchUp(conversation);
    this.#tell("running");
    this.#return(answer);
  }

  #ended({ answer }) {
    this.#live.ended(answer);
    // One that failed without a word is no version any more.
    if (this.conversation.has(answer) && answer.state === "error") this.#tell("branch");
    this.#tell("running");
    this.#tell("ended", answer);
    this.#return(answer);
    if (!this.conversation.has(answer)) return;
    // A summary that was on its way at a reload does not know whose it is.
    const isUnlinked = answer.isSummary && this.conversation.carriedFrom === null;
    if (answer.isInDoubt || isUnlinked) this.#elsewhere.reread();
    else this.#elsewhere.catchUp(this.conversation);
  }

  /** Who asked too long a question wants to shorten it, not to write it again. */
  #return(answer) {
    const question = this.conversation.has(answer) ? this.conversation.questionOf(answer) : null;
    if (question !== null && TOO_LONG.has(answer.error?.code)) this.#tell("returned", question.text);
  }

  #watchElsewhere(connection) {
    const shown = () => this.conversation;
    return new Elsewhere({
      ...{ connection, peers: this.peers, sending: this.#sending, runs: this.#runs, live: this.#live },
      page: {
        get shown() {
          return shown();
        },
        told: (conversation) => {
          if (conversation !== this.conversation) return;
          this.#tell("branch");
          this.#tell("running");
        },
        deleted: (conversation) => this.#refusedOnes.forgetOf(conversation),
        gone: (conversation) => this.#tell("gone", { conversation }),
      },
    });
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

/** What asks `text` behind what is shown of a conversation. */
function questionIn(conversation, text) {
  const message = { type: "ask", id: newId(), text: text.toWellFormed(), course: conversation.course };
  if (conversation.id !== null) message.conversation = conversation.id;
  const parent = conversation.lastStored;
  if (parent !== null) message.parent = parent.id;
  return message;
}

/** Whether a message begins a conversation. */
function isBeginning({ type, conversation }) {
  return type === "carry" || (type === "ask" && conversation === undefined);
}
