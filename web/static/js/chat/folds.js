// What each event of a run does to an answer. Events come here once and in order (see runs.js).

import { utf16Offset } from "../offsets.js";

/** Ends that nobody asked for, by the type of their detail; the store has the same rule. */
const INTERRUPTED = new Set(["client_gone", "slow_client", "deadline", "shutdown"]);

export const FOLDS = {
  accepted(answer, event) {
    answer.id = event.message;
    answer.carriedFrom = event.carried_from ?? answer.carriedFrom;
    // A continuation has its passages, and a summary needs none.
    answer.phase = answer.isContinued || answer.isSummary ? "reading" : "searching";
  },
  queued(answer, event) {
    answer.phase = "queued";
    answer.queuePosition = event.position;
    answer.etaMs = event.eta_ms ?? null;
  },
  retrieval(answer, event) {
    answer.passages = event.passages;
    answer.passagesDropped = event.dropped;
    answer.notFound = event.not_found ?? false;
    answer.notFoundParts = event.not_found_parts ?? [];
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
    if (event.base_chars !== undefined) beginAt(answer, event);
    else if (event.continued && answer.base === 0) {
      answer.base = answer.seams.at(-1) ?? answer.text.length;
      // Who had begun to answer had thought before; who had not goes on thinking, from where it
      // stood when this page asked for that.
      if (answer.base > 0) answer.thinkingBase = answer.thinking.length;
    }
    answer.text = answer.text.slice(0, answer.base);
    answer.thinking = answer.thinking.slice(0, answer.thinkingBase);
    // Told anew at the end, for the whole text.
    answer.citations = null;
    answer.noSupport = false;
  },
  progress(answer, event) {
    answer.progress = event.total > 0 ? event.prefilled / event.total : null;
  },
  thinking(answer, event) {
    answer.thinking += event.text;
    answer.phase = "thinking";
    answer.beganThinking();
  },
  delta(answer, event) {
    answer.text += event.text;
    answer.beganWriting();
  },
  snapshot(answer, event) {
    if (event.thinking) {
      answer.thinking = answer.thinking.slice(0, answer.thinkingBase) + event.thinking;
      answer.phase = "thinking";
      answer.beganThinking();
    }
    answer.text = answer.text.slice(0, answer.base) + event.text;
    if (event.text || !event.thinking) answer.beganWriting();
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
    answer.canUndo = event.can_undo ?? false;
    answer.maxTokens = event.max_tokens ?? answer.maxTokens;
    const { window_used, turns_left_out } = event;
    if (answer.context !== null && window_used) answer.context = { ...answer.context, window_used };
    // A summary has no other report before it is read again.
    if (turns_left_out) answer.context = { ...answer.context, turns_left_out };
    if (event.finish_detail.type === "not_found") answer.notFound = true;
    answer.end(stateOf(event));
    if (answer.state === "error") answer.error = errorOf(event.finish_detail);
  },
  error(answer, event) {
    answer.end("error");
    answer.error = errorOf(event);
    // As the server has it of a stored answer: what was written can be gone on with.
    answer.canContinue = answer.id !== null && answer.text + answer.thinking !== "";
  },
};

/**
 * The run begins behind so many characters of the text and the thinking, which is not always where
 * this page believes it: a part may be there already, or may have been taken back elsewhere.
 */
function beginAt(answer, { base_chars: numChars, base_thinking_chars: numThinking = 0 }) {
  const isWhole = numChars === 0 && numThinking === 0;
  answer.base = utf16Offset(answer.text, numChars);
  answer.thinkingBase = utf16Offset(answer.thinking, numThinking);
  // Only the store knows what it was before: a part that is not here, or the seams of a whole.
  answer.isInDoubt = (isWhole && answer.isContinued) || [...answer.text.slice(0, answer.base)].length < numChars;
  if (isWhole) return;
  // Parts before may have brought no text, so that several seams stand at one place.
  const isOwn = answer.seams.at(-1) === answer.base;
  const before = isOwn ? answer.seams.slice(0, -1) : answer.seams.filter((seam) => seam < answer.base);
  answer.seams = [...before, answer.base];
}

/** An error as an answer keeps it, from an event or from a stored finish detail. */
export function errorOf({ code, message, retryable, retry_after_ms: retryAfterMs }) {
  return {
    code: code ?? "internal",
    message: message ?? "",
    retryable: retryable ?? true,
    retryAfterMs: retryAfterMs ?? null,
  };
}

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
