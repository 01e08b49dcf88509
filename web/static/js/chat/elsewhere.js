// What happens to the shown conversation elsewhere, or while this page was away, and how the page
// comes back to what is stored.

import { api } from "../api.js";

/**
 * `page`: `shown` (the conversation that is shown, a getter), `told(conversation)` (it has been read
 * again), `deleted(id)` (a conversation was) and `gone(id)` (it is the one that is shown).
 */
export class Elsewhere {
  #sending;
  #runs;
  #live;
  #page;
  /** Runs that began elsewhere and whose conversation is being read again. */
  #arriving = new Set();
  /** Conversations of which something was not read, since a run was on its way or went on. */
  #missed = new WeakSet();
  /** Conversation → {asked, merged}: numbers of its newest reads, whose replies may overtake. */
  #reads = new WeakMap();
  #numWelcomes = 0;

  constructor({ connection, peers, sending, runs, live, page }) {
    this.#sending = sending;
    this.#runs = runs;
    this.#live = live;
    this.#page = page;
    connection.addEventListener("welcome", ({ detail }) => this.#welcome(detail));
    peers.addEventListener("opened", ({ detail }) => this.#opened(detail));
    peers.addEventListener("changed", ({ detail }) => this.#changed(detail));
    peers.addEventListener("deleted", ({ detail }) => this.#deleted(detail.conversation));
  }

  /** The stored conversation is the truth: reads it again, at once or when its run has ended. */
  async reread(conversation = this.#page.shown) {
    const { id } = conversation;
    if (id === null) return;
    if (this.#sending.isInto(conversation)) {
      this.#missed.add(conversation);
      return;
    }
    const { numSent } = this.#sending;
    const reads = this.#readsOf(conversation);
    const turn = (reads.asked += 1);
    let stored;
    try {
      stored = await api.conversation(id);
    } catch (error) {
      // Offline again: the next welcome comes back to this.
      if (error.status === 404) this.#deleted(id);
      return;
    }
    if (turn < reads.merged) return;
    if (numSent !== this.#sending.numSent) {
      // It may lack what was sent meanwhile.
      await this.reread(conversation);
      return;
    }
    reads.merged = turn;
    this.#live.drop(id);
    this.#live.unfollow(conversation);
    this.#missed.delete(conversation);
    conversation.merge(stored);
    this.#live.follow(stored, conversation);
    this.#page.told(conversation);
  }

  /** Nothing runs in `conversation`, or is on its way to it, any more: reads what was missed. */
  catchUp(conversation) {
    if (this.#missed.has(conversation)) this.reread(conversation);
  }

  /** The server does not know a run (any more): what is stored is the truth. */
  lose(run) {
    const conversation = this.#live.lose(run);
    if (conversation === undefined || conversation === this.#page.shown) this.reread();
  }

  #readsOf(conversation) {
    if (!this.#reads.has(conversation)) this.#reads.set(conversation, { asked: 0, merged: 0 });
    return this.#reads.get(conversation);
  }

  #welcome({ active_runs: active = [] }) {
    this.#numWelcomes += 1;
    const { shown } = this.#page;
    // What is on its way is sent again now, and finds its run by itself.
    if (this.#sending.isInto(shown)) {
      if (this.#numWelcomes > 1 && shown.id !== null) this.#missed.add(shown);
      return;
    }
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
    if (isStale) this.reread();
  }

  async #opened({ run, conversation, title }) {
    if (this.#runs.answerOf(run) !== undefined || this.#arriving.has(run)) return;
    const { shown } = this.#page;
    if (conversation !== shown.id) {
      this.#live.drop(conversation);
      return;
    }
    shown.title ??= title;
    this.#arriving.add(run);
    await this.reread(shown);
    this.#arriving.delete(run);
  }

  #changed({ conversation, title }) {
    const { shown } = this.#page;
    if (conversation !== shown.id) {
      this.#live.drop(conversation);
      return;
    }
    const known = shown.title;
    shown.title = title;
    const { asked, merged } = this.#readsOf(shown);
    // Where it has no other title, something else has changed; a read on its way may bring the old.
    if (title !== known && known !== null && asked === merged) return;
    if (shown.runningAnswer === null) this.reread(shown);
    else this.#missed.add(shown);
  }

  #deleted(id) {
    this.#live.drop(id);
    this.#page.deleted(id);
    if (id === this.#page.shown.id) this.#page.gone(id);
  }
}
