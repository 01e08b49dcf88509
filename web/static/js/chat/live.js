// Conversations in which something runs, so that coming back to one finds it as it was.

export class LiveConversations {
  #runs;
  #byId = new Map();

  constructor(runs) {
    this.#runs = runs;
  }

  get(id) {
    return this.#byId.get(id);
  }

  keep(conversation) {
    this.#byId.set(conversation.id, conversation);
  }

  /** It is to be read again when it is opened. */
  drop(id) {
    this.#byId.delete(id);
  }

  /** The conversation of an answer, or undefined. */
  of(answer) {
    return [...this.#byId.values()].find((conversation) => conversation.has(answer));
  }

  /** Follows the run that the API has told for a conversation that was just read, if there is one. */
  follow({ active_run: run }, conversation) {
    const answer = conversation.runningAnswer ?? conversation.newestAnswer;
    if (!run || answer === null) return;
    this.keep(conversation);
    this.followRun(run, answer);
  }

  followRun(run, answer) {
    if (!answer.isRunning) answer.beginReplay();
    this.#runs.attach(run, answer);
  }

  /** What is stored of a conversation comes in place of what its run would tell. */
  unfollow(conversation) {
    const answer = conversation.runningAnswer;
    const run = answer && this.#runs.runOf(answer);
    if (run) this.#runs.forget(run);
  }

  /** Forgets the run; returns the conversation that it wrote into, undefined where none is known. */
  lose(run) {
    const answer = this.#runs.answerOf(run);
    const conversation = answer && this.of(answer);
    this.#runs.forget(run);
    if (conversation !== undefined) this.drop(conversation.id);
    return conversation;
  }

  /** An answer has ended. */
  ended(answer) {
    const conversation = this.of(answer);
    if (conversation?.runningAnswer === null) this.drop(conversation.id);
  }
}
