// Running answers: each event applied once and in order, whatever happens to the connection.

/** Events without which the text would be wrong: only these make a missing number a gap. */
const TEXTUAL = new Set(["delta", "thinking", "citation", "finish", "error"]);

class Follower {
  seq = 0;
  isAttaching = false;

  constructor(run, answer) {
    this.run = run;
    this.answer = answer;
  }
}

/** Follows runs over the connection and folds their events into answers. */
export class Runs extends EventTarget {
  #connection;
  #followers = new Map();

  constructor(connection) {
    super();
    this.#connection = connection;
    connection.addEventListener("welcome", () => {
      for (const follower of this.#followers.values()) {
        this.#attach(follower);
        // That it is to stop may have been lost with the connection.
        if (follower.answer.isStopping) this.cancel(follower.answer);
      }
    });
  }

  /** The answer that a run writes, or undefined if this page does not follow it. */
  answerOf(run) {
    return this.#followers.get(run)?.answer;
  }

  /** The run that writes `answer`, or null. */
  runOf(answer) {
    for (const follower of this.#followers.values()) {
      if (follower.answer === answer) return follower.run;
    }
    return null;
  }

  /** Takes a run that this connection already gets events of (its `accepted` has just come). */
  adopt(run, answer) {
    this.#followers.set(run, new Follower(run, answer));
  }

  /** Follows a run from its first event: after a reload, or one of another tab. An answer that was
   * read again takes the place of the one that this page had before. */
  attach(run, answer) {
    if (this.answerOf(run) === answer) return;
    const follower = new Follower(run, answer);
    this.#followers.set(run, follower);
    this.#attach(follower);
  }

  /** Stops following; the run goes on. */
  forget(run) {
    this.#followers.delete(run);
  }

  /** Stops the run that writes `answer`, where one is known. A welcome repeats it, while the answer
   * `isStopping`. */
  cancel(answer) {
    const run = this.runOf(answer);
    if (run !== null) this.#connection.send({ type: "cancel", run });
  }

  /** Takes one event of a run that is followed. */
  receive(event) {
    const follower = this.#followers.get(event.run);
    if (follower === undefined) return;
    // Still on their way when it was attached to: all is told again, from the first event.
    if (follower.isAttaching && follower.seq === 0 && event.seq !== 1) return;
    if (event.type === "snapshot") {
      if (event.through_seq < follower.seq) return;
      follower.seq = event.through_seq;
    } else {
      if (event.seq <= follower.seq) return;
      if (event.seq > follower.seq + 1 && TEXTUAL.has(event.type)) {
        if (!follower.isAttaching) this.#attach(follower);
        return;
      }
      follower.seq = event.seq;
    }
    follower.isAttaching = false;
    follower.answer.apply(event);
    if (event.type === "finish" || event.type === "error") {
      this.#followers.delete(event.run);
      this.dispatchEvent(new CustomEvent("end", { detail: { run: event.run, answer: follower.answer } }));
    }
  }

  #attach(follower) {
    const { run, seq } = follower;
    follower.isAttaching = this.#connection.send({ type: "attach", run, after_seq: seq });
  }
}
