// Questions and answers as the page knows them: from the history, or folded from a run's events.

import { utf16Offset } from "../offsets.js";
import { FOLDS, errorOf } from "./folds.js";

/** Messages to the server that would make something new, a question or a summary. */
export const MAKES_NEW = new Set(["ask", "edit", "carry"]);

/**
 * A question. It has the `key` that it was sent under from this page, and no `id` until the server
 * has named it; `parent` is the id (or key) of the message that it follows, null at the beginning.
 */
export class Question {
  constructor({ id = null, parent = null, text, key = null, updated_at: updatedAt = null }) {
    this.id = id;
    this.parent = parent;
    this.text = text;
    this.key = key;
    this.updatedAt = updatedAt;
  }
}

/**
 * An answer. `state` is "running", "finished", "stopped", "interrupted" or "error"; `phase`, while
 * it runs, is "sending", "searching", "queued", "reading", "thinking" or "writing". Every change is
 * told by a "change" event (detail "text" where only text was added, of the answer or of its
 * thinking).
 */
export class Answer extends EventTarget {
  id = null;
  key = null;
  /** The id (or key) of the question, null for a summary. */
  parent = null;
  updatedAt = null;
  /** Whether it is the summary of an earlier conversation, which no question precedes. */
  isSummary = false;
  /** Of a summary: id of the message up to which it goes, in a conversation that may be gone. */
  carriedFrom = null;
  state = "running";
  phase = "sending";
  text = "";
  /** What the model wrote before it answered; no part of the answer. */
  thinking = "";
  seams = [];
  passages = [];
  passagesDropped = 0;
  notFound = false;
  /** What of the question nothing was found for, where something was for the rest. */
  notFoundParts = [];
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
  /** How long the server expects it to wait in line, in ms; null where it cannot say. */
  etaMs = null;
  progress = null;
  finishReason = null;
  finishDetail = null;
  usage = null;
  timing = null;
  canContinue = false;
  /** Whether its last continuation can be taken back. */
  canUndo = false;
  error = null;
  isStopping = false;
  /** The last continuation is being taken back. */
  isUndoing = false;
  /** When it was asked for, or first followed, and when its text last grew (performance.now). */
  startedAt = null;
  lastDeltaAt = null;
  /** What this page has sent for it, to be sent again where the server refused it. */
  request = null;
  /** Lengths of what stood before the run that is writing now. */
  base = 0;
  thinkingBase = 0;
  /** Whether, when it has ended, it may differ from what is stored. */
  isInDoubt = false;
  #thinkingSince = null;
  #thoughtMs = null;

  /** One that is about to be asked for. */
  constructor({ key = null, parent = null, isSummary = false, carriedFrom = null } = {}) {
    super();
    Object.assign(this, { key, parent, isSummary, carriedFrom });
  }

  /** An answer as the API tells it. */
  static fromHistory(message) {
    const answer = new Answer();
    const text = message.text ?? "";
    Object.assign(answer, {
      id: message.id,
      parent: message.parent ?? null,
      updatedAt: message.updated_at ?? null,
      isSummary: message.role === "summary",
      state: message.state,
      phase: "searching",
      text,
      thinking: message.thinking ?? "",
      seams: (message.seams ?? []).map((offset) => utf16Offset(text, offset)),
      passages: message.passages ?? [],
      passagesDropped: message.passages_dropped ?? 0,
      notFound: message.not_found ?? false,
      notFoundParts: message.not_found_parts ?? [],
      citations: message.citations ?? null,
      noSupport: message.no_support ?? false,
      feedback: message.feedback ?? null,
      context: message.context ?? null,
      model: message.model ?? null,
      maxTokens: message.max_tokens ?? null,
      maxTokensLowered: (message.options?.max_tokens ?? 0) > (message.max_tokens ?? Infinity),
      finishReason: message.finish_reason ?? null,
      finishDetail: message.finish_detail ?? null,
      usage: message.usage ?? null,
      timing: message.timing ?? null,
      canContinue: message.can_continue ?? false,
      canUndo: message.can_undo ?? false,
    });
    if (answer.state === "error") answer.error = errorOf(message.finish_detail ?? {});
    return answer;
  }

  get isRunning() {
    return this.state === "running";
  }

  /** Whether the server has not taken what it was to answer, and knows nothing of it. */
  get isRefused() {
    return this.state === "error" && this.id === null && MAKES_NEW.has(this.request?.type);
  }

  get isThinking() {
    return this.isRunning && this.phase === "thinking";
  }

  /** How long it thought, in ms: as the server has timed it, else as this page has; null: unknown. */
  get thinkingMs() {
    if (this.timing?.thinking_ms !== undefined) return this.timing.thinking_ms;
    if (this.#thinkingSince === null) return this.#thoughtMs;
    return (this.#thoughtMs ?? 0) + performance.now() - this.#thinkingSince;
  }

  /** Whether it goes on, or has gone on, from where it was cut. */
  get isContinued() {
    return this.seams.length > 0;
  }

  /** The first question that the model saw: its id; null: all; undefined: an answer of old. */
  get viewFrom() {
    return this.context?.view_from;
  }

  /** A Continue was asked for: the text stays, and a seam marks where the new part begins. */
  beginContinuation() {
    this.base = this.text.length;
    this.thinkingBase = this.thinking.length;
    this.#begin();
    this.seams = [...this.seams, this.base];
    this.#changed();
  }

  /** The same is sent again: everything that the refused attempt left goes. */
  restart() {
    const { id, request } = this;
    Object.assign(this, new Answer(this), { id, request });
    this.#begin();
    this.#changed();
  }

  /** A run that this page did not start is about to be replayed into this answer. */
  beginReplay() {
    const { phase } = this;
    this.#begin();
    this.phase = phase;
    this.#changed();
  }

  /** As `beginReplay`, of a run that tells all of it, to its last character. */
  beginAnew() {
    this.text = "";
    this.thinking = "";
    this.base = 0;
    this.thinkingBase = 0;
    this.beginReplay();
  }

  /** It has just been asked for from this page. */
  began() {
    this.startedAt = performance.now();
    this.lastDeltaAt = null;
  }

  /** The server has refused it. */
  fail(error) {
    this.end("error");
    this.error = errorOf(error);
    this.#changed();
  }

  /** What is stored is the truth: takes it all over, if it says anything else. */
  takeOver(stored) {
    const isSame = signature(this) === signature(stored);
    const { key, startedAt } = this;
    Object.assign(this, stored, { key, startedAt, carriedFrom: stored.carriedFrom ?? this.carriedFrom });
    this.#thinkingSince = null;
    if (!isSame) this.#changed();
  }

  /** Shows that something else than its text has changed. */
  touch() {
    this.#changed();
  }

  /** Folds one event of the run, in order. */
  apply(event) {
    const fold = FOLDS[event.type];
    if (fold === undefined) return;
    const { phase } = this;
    fold(this, event);
    const isGrowth = (event.type === "delta" || event.type === "thinking") && phase === this.phase;
    this.#changed(isGrowth ? "text" : "all");
  }

  /** For the folds: thinking goes on. */
  beganThinking() {
    this.lastDeltaAt = performance.now();
    this.#thinkingSince ??= this.lastDeltaAt;
  }

  /** For the folds: the answer's own text goes on, so that thinking has ended. */
  beganWriting() {
    this.#endThinking();
    this.lastDeltaAt = performance.now();
    this.phase = "writing";
  }

  /** For the folds: it has ended in `state`. */
  end(state) {
    this.#endThinking();
    this.state = state;
    this.isStopping = false;
    this.isUndoing = false;
  }

  #endThinking() {
    if (this.#thinkingSince === null) return;
    this.#thoughtMs = (this.#thoughtMs ?? 0) + performance.now() - this.#thinkingSince;
    this.#thinkingSince = null;
  }

  #begin() {
    this.state = "running";
    this.phase = "sending";
    this.error = null;
    this.finishReason = null;
    this.finishDetail = null;
    this.canContinue = false;
    this.canUndo = false;
    this.updatedAt = null;
    this.isStopping = false;
    this.isUndoing = false;
    this.progress = null;
    this.queuePosition = null;
    this.etaMs = null;
    this.began();
  }

  #changed(what = "all") {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
  }
}

/** What a reader sees of an answer; equal where nothing is to be shown again. */
function signature(answer) {
  const { state, text, thinking, seams, finishDetail, canContinue, canUndo, feedback, passages, citations, isUndoing } = answer;
  return JSON.stringify([
    ...[state, text, thinking.length, seams, finishDetail?.type, canContinue, canUndo, isUndoing],
    ...[feedback, passages.length, citations?.length, answer.usage?.total_tokens],
  ]);
}
