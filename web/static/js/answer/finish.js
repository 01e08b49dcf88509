// How an answer ended, in words.

import { number, plural, t } from "../i18n.js";

/**
 * {tone, text, action}: tone "done", "quiet", "amber" or "red"; action "continue", "retry",
 * "new" or null. Null while the answer runs.
 */
export function describeFinish(answer) {
  if (answer.isRunning) return null;
  if (answer.state === "error") return describeError(answer);
  const carryOn = answer.canContinue ? "continue" : null;
  const { type, matched } = answer.finishDetail ?? {};
  switch (type) {
    case "eos":
    case "stop_token":
      return { tone: "done", text: t("finish.ended"), action: null };
    case "not_found":
      return { tone: "quiet", text: t("finish.notFound"), action: null };
    case "stop_string":
      return { tone: "done", text: t("finish.stopString", { matched: visible(matched) }), action: null };
    case "max_tokens":
      return { tone: "amber", text: lengthText(answer), action: carryOn };
    case "context_window":
      return { tone: "amber", text: windowText(answer), action: "new" };
    case "kv_capacity":
      return { tone: "amber", text: t("finish.kvCapacity"), action: carryOn };
    case "cancelled":
      return { tone: "quiet", text: t("finish.cancelled"), action: carryOn };
    case "interrupted":
      return { tone: "amber", text: t("finish.interrupted"), action: carryOn ?? "retry" };
    case "deadline":
      return { tone: "amber", text: t("finish.deadline"), action: carryOn ?? "retry" };
    case "shutdown":
      return { tone: "amber", text: t("finish.shutdown"), action: carryOn ?? "retry" };
    case "client_gone":
    case "slow_client":
      return { tone: "amber", text: t("finish.clientGone"), action: carryOn ?? "retry" };
    default:
      return { tone: "done", text: t("finish.other", { reason: type ?? answer.finishReason ?? "?" }), action: carryOn };
  }
}

function lengthText(answer) {
  return answer.maxTokens === null
    ? t("finish.maxTokensUnknown")
    : t("finish.maxTokens", { limit: number(answer.maxTokens) });
}

function windowText(answer) {
  return answer.context === null
    ? t("finish.windowUnknown")
    : t("finish.window", { window: number(answer.context.window) });
}

function describeError(answer) {
  const { code, message, retryable } = answer.error;
  const key = `error.${code}`;
  const known = t(key);
  const text = known === key ? message || t("error.internal") : known;
  return { tone: "red", text, code, action: retryable ? "retry" : null };
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
      return answer.queuePosition > 1
        ? t("phase.queued", { position: number(answer.queuePosition) })
        : t("phase.queuedNext");
    case "reading": {
      const used = answer.passages.filter((passage) => passage.used).length;
      return used > 0 ? plural("phase.reading", used) : t("phase.readingQuestion");
    }
    default:
      return t("phase.writing");
  }
}

/** Line ends and the like as they are written in code: a stop sequence is often one. */
function visible(text) {
  return JSON.stringify(text ?? "").slice(1, -1).replaceAll('\\"', '"');
}
