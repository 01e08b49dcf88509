// Questions and answers as the page knows them: from the history, or folded from a run's events.

import { utf16Offset } from "../offsets.js";

/** Ends that nobody asked for, by the type of their detail; the store has the same rule. */
const INTERRUPTED = new Set(["client_gone", "slow_client", "deadline", "shutdown"]);

export class Question {
  constructor({ id = null, parent = null, text, key = null }) {
    this.id = id;
    this.parent = parent;
    this.text = text;
    /** The idempotency key under which it was sent from this page. */
    this.key = key;
  }
}

/**
 * An answer. `state` is "running", "finished", "stopped", "interrupted" or "error"; `phase`, while
 * it runs, is "sending", "searching", "queued", "reading" or "writing". Every change is told by a
 * "change" event (detail "text" where only text was added).
 */
export class Answer extends EventTarget {
  id = null;
  state = "running";
  phase = "sending";
  text = "";
  seams = [];
  passages = [];
  passagesDropped = 0;
  notFound = false;
  /** [{n, start, end, marks, by}], null until the server has compared the text with its sources. */
  citations = null;
  noSupport = false;
  /** What its reader thought of it: {value: "up" or "down", note}, or null. */
  feedback = null;
  context = null;
  model = null;
  maxTokens = null;
  maxTokensLowered = false;
  queuePosition = null;
  progress = null;
  finishReason = null;
  finishDetail = null;
  usage = null;
  timing = null;
  canContinue = false;
  error = null;
  isStopping = false;
  /** Length of the text before the run that is writing now: 0, or the whole text at a Continue. */
  base = 0;

  static fromHistory(message) {
    const answer = new Answer();
    Object.assign(answer, {
      id: message.id,
      state: message.state,
      phase: "searching",
      text: message.text ?? "",
      seams: (message.seams ?? []).map((offset) => utf16Offset(message.text, offset)),
      passages: message.passages ?? [],
      passagesDropped: message.passages_dropped ?? 0,
      notFound: message.not_found ?? false,
      citations: message.citations ?? null,
      noSupport: message.no_support ?? false,
      feedback: message.feedback ?? null,
      context: message.context ?? null,
      model: message.model ?? null,
      maxTokens: message.max_tokens ?? null,
      finishReason: message.finish_reason ?? null,
      finishDetail: message.finish_detail ?? null,
      usage: message.usage ?? null,
      timing: message.timing ?? null,
      canContinue: message.can_continue ?? false,
    });
    if (answer.state === "error") answer.error = errorOf(message.finish_detail ?? {});
    return answer;
  }

  get isRunning() {
    return this.state === "running";
  }

  /** A Continue was asked for: the text stays, and a seam marks where the new part begins. */
  beginContinuation() {
    this.base = this.text.length;
    this.#begin();
    this.seams = [...this.seams, this.base];
    this.#changed();
  }

  /** The same question is asked again: everything that the first attempt left goes. */
  restart() {
    const { id } = this;
    Object.assign(this, new Answer(), { id });
    this.#changed();
  }

  /** A run that this page did not start is about to be replayed into this answer. */
  beginReplay() {
    const { phase } = this;
    this.#begin();
    this.phase = phase;
    this.#changed();
  }

  fail(error) {
    this.state = "error";
    this.error = errorOf(error);
    this.isStopping = false;
    this.#changed();
  }

  /** The connection to the run is gone for good; what is stored is the truth (see history). */
  adopt(stored) {
    Object.assign(this, stored);
    this.isStopping = false;
    this.#changed();
  }

  /** Folds one event of the run, in order. */
  apply(event) {
    const fold = FOLDS[event.type];
    if (fold === undefined) return;
    fold(this, event);
    this.#changed(event.type === "delta" ? "text" : "all");
  }

  #begin() {
    this.state = "running";
    this.phase = "sending";
    this.error = null;
    this.finishReason = null;
    this.finishDetail = null;
    this.canContinue = false;
    this.isStopping = false;
    this.progress = null;
    this.queuePosition = null;
  }

  #changed(what = "all") {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }
}

const FOLDS = {
  accepted(answer, event) {
    answer.id = event.message;
    answer.phase = "searching";
  },
  queued(answer, event) {
    answer.phase = "queued";
    answer.queuePosition = event.position;
  },
  retrieval(answer, event) {
    answer.passages = event.passages;
    answer.passagesDropped = event.dropped;
    answer.notFound = event.not_found ?? false;
    answer.phase = "reading";
  },
  context(answer, event) {
    answer.context = event;
  },
  start(answer, event) {
    answer.phase = "reading";
    answer.model = event.model;
    answer.maxTokens = event.max_tokens;
    answer.maxTokensLowered = event.max_tokens_lowered ?? false;
    if (event.continued && answer.base === 0) answer.base = answer.seams.at(-1) ?? answer.text.length;
    answer.text = answer.text.slice(0, answer.base);
    // Told anew at the end, for the whole text.
    answer.citations = null;
    answer.noSupport = false;
  },
  progress(answer, event) {
    answer.progress = event.total > 0 ? event.prefilled / event.total : null;
  },
  delta(answer, event) {
    answer.text += event.text;
    answer.phase = "writing";
  },
  snapshot(answer, event) {
    answer.text = answer.text.slice(0, answer.base) + event.text;
    answer.phase = "writing";
  },
  citation(answer, { n, start, end, marks, by }) {
    answer.citations = [...(answer.citations ?? []), { n, start, end, marks, by }];
  },
  finish(answer, event) {
    answer.citations ??= [];
    answer.noSupport = event.no_support ?? false;
    answer.passages = answer.passages.map((passage) => ({ ...passage, marks: marksOf(answer.citations, passage.n) }));
    answer.finishReason = event.finish_reason;
    answer.finishDetail = event.finish_detail;
    answer.usage = event.usage;
    answer.timing = event.timing;
    answer.canContinue = event.can_continue;
    answer.isStopping = false;
    if (event.finish_detail.type === "not_found") answer.notFound = true;
    answer.state = stateOf(event);
    if (answer.state === "error") answer.error = errorOf(event.finish_detail);
  },
  error(answer, event) {
    answer.state = "error";
    answer.isStopping = false;
    answer.error = errorOf(event);
  },
};

/** All that is marked in passage `n`, each range once. */
function marksOf(citations, n) {
  const marks = citations.filter((citation) => citation.n === n).flatMap((citation) => citation.marks);
  return [...new Map(marks.map((mark) => [mark.join(), mark])).values()].sort((a, b) => a[0] - b[0]);
}

function stateOf({ finish_reason: reason, finish_detail: { type } }) {
  if (reason === "error") return "error";
  if (type === "cancelled") return "stopped";
  return INTERRUPTED.has(type) ? "interrupted" : "finished";
}

function errorOf({ code, message, retryable, retry_after_ms: retryAfterMs }) {
  return { code: code ?? "internal", message: message ?? "", retryable: retryable ?? true, retryAfterMs };
}
