// How an answer ended, and what it is doing until then, in words.

import { number, plural, t } from "../i18n.js";
import { estimated } from "./spans.js";

/** Tones of ends that are known only by their OpenAI-style reason. */
const TONES = { stop: "done", tool_calls: "quiet", length: "amber", abort: "amber", error: "red" };

/**
 * {tone, text, code?, actions}. `tone`: "done" (whole), "quiet" (as somebody wanted it),
 * "amber" (cut) or "red" (failed); `code`: of an error;
 * `actions`, the first the likeliest, of "continue" (by the same limit again), "raise" (without
 * this limit), "retry", "carry" (a new conversation with a summary), "new" and "undo" (of the last
 * continuation). Null while the answer runs.
 */
export function describeFinish(answer) {
  if (answer.isRunning) return null;
  const end = answer.state === "error" ? describeError(answer) : describeEnd(answer);
  if (answer.canUndo) end.actions.push("undo");
  return end;
}

function describeEnd(answer) {
  const { type, matched } = answer.finishDetail ?? {};
  switch (type) {
    case "eos":
    case "stop_token":
      return end("done", t("finish.ended"));
    case "stop_string":
      return end("done", t("finish.stopString", { matched: visible(matched) }));
    case "not_found":
      return end("quiet", t("finish.notFound"));
    case "extract":
      return end("quiet", t("finish.extract"));
    case "tool_calls":
      return end("amber", t("finish.toolCalls"), ["retry"]);
    case "cancelled":
      return end("quiet", t("finish.cancelled"), wayOn(answer));
    case "max_tokens":
      return describeLimit(answer);
    case "context_window":
      return cut(answer, windowText(answer), elsewhere(answer));
    case "kv_capacity":
      return cut(answer, t("finish.kvCapacity"), elsewhere(answer));
    case "interrupted":
      return cut(answer, t("finish.interrupted"), wayOn(answer));
    case "deadline":
      return cut(answer, t("finish.deadline"), wayOn(answer));
    case "shutdown":
      return cut(answer, t("finish.shutdown"), wayOn(answer));
    case "client_gone":
    case "slow_client":
      return cut(answer, t("finish.clientGone"), wayOn(answer));
    default:
      return describeUnknown(answer, type);
  }
}

/** An end of a newer server: its reason decides whether anything is missing. */
function describeUnknown(answer, type) {
  const reason = type ?? answer.finishReason ?? "?";
  const tone = TONES[answer.finishReason] ?? "amber";
  if (tone === "done" || tone === "quiet") return end(tone, t("finish.other", { reason }));
  return { ...cut(answer, t("finish.otherCut", { reason }), wayOn(answer)), tone };
}

function describeLimit(answer) {
  const limit = answer.maxTokens === null ? null : number(answer.maxTokens);
  if (onlyThought(answer)) {
    const text = limit === null ? t("finish.thinkingLimitUnknown") : t("finish.thinkingLimit", { limit });
    return end("amber", text, limitActions(answer, ["raise", "continue"]));
  }
  const text = limit === null ? t("finish.maxTokensUnknown") : t("finish.maxTokens", { limit });
  return end("amber", text, limitActions(answer, ["continue", "raise"]));
}

function limitActions(answer, actions) {
  const room = roomLeft(answer);
  // Where the window ends before the limit would, there is no limit to lift.
  if (answer.canContinue) return room === null || room <= answer.maxTokens ? ["continue"] : actions;
  return room === null && answer.context !== null ? elsewhere(answer) : ["retry"];
}

/** How many tokens the model's window still holds after the answer; null where none or unknown. */
function roomLeft(answer) {
  const room = (answer.context?.window ?? 0) - (answer.usage?.total_tokens ?? Infinity);
  return room > 0 ? room : null;
}

function windowText(answer) {
  return answer.context === null
    ? t("finish.windowUnknown")
    : t("finish.window", { window: number(answer.context.window) });
}

function cut(answer, text, actions) {
  const words = onlyThought(answer) ? t("finish.more", { text, more: t("finish.onlyThought") }) : text;
  return end("amber", words, actions);
}

/** Whether the answer ended before the first word of it, while the model was thinking. */
function onlyThought(answer) {
  return answer.finishDetail?.in === "reasoning" && answer.text === "";
}

function wayOn(answer) {
  return [answer.canContinue ? "continue" : "retry"];
}

/** Ways on where this conversation has no room: with what was said in it, or without. */
function elsewhere(answer) {
  return answer.id === null ? ["new"] : ["carry", "new"];
}

function end(tone, text, actions = []) {
  return { tone, text, actions: [...actions] };
}

function describeError(answer) {
  const { code, message, retryable, retryAfterMs } = answer.error;
  const key = `error.${code}`;
  const known = t(key);
  let text = known === key ? message || t("error.internal") : known;
  if (retryAfterMs) text = t("finish.more", { text, more: t("error.after", { time: estimated(retryAfterMs) }) });
  const described = { ...end("red", text), code };
  if (answer.canContinue) described.actions.push("continue");
  if (retryable) described.actions.push("retry");
  if (answer.isRefused) described.actions.push("discard");
  return described;
}

/** What an answer is doing now, for the line above it and for the status region. */
export function describePhase(answer) {
  if (answer.isStopping) return t("phase.stopping");
  switch (answer.phase) {
    case "sending":
      return t("phase.sending");
    case "searching":
      return t("phase.searching");
    case "queued":
      return describeQueue(answer);
    case "reading": {
      if (answer.isSummary) return t("phase.readingTurns");
      const used = answer.passages.filter((passage) => passage.used).length;
      return used > 0 ? plural("phase.reading", used) : t("phase.readingQuestion");
    }
    case "thinking":
      return t("phase.thinking");
    default:
      return t(answer.isSummary ? "phase.writingSummary" : "phase.writing");
  }
}

function describeQueue({ queuePosition, etaMs }) {
  const isNext = !(queuePosition > 1);
  const values = { position: number(queuePosition ?? 1) };
  if (etaMs === null || etaMs === undefined) return isNext ? t("phase.queuedNext") : t("phase.queued", values);
  const time = estimated(etaMs);
  return isNext ? t("phase.queuedNextEta", { time }) : t("phase.queuedEta", { ...values, time });
}

/** Line ends and the like as they are written in code: a stop sequence is often one. */
function visible(text) {
  return JSON.stringify(text ?? "").slice(1, -1).replaceAll('\\"', '"');
}
