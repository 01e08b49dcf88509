// The details of an answer: what it cost, how fast it was, and how the model's window was filled.

import { element } from "../elements.js";
import { duration, number, plural, t } from "../i18n.js";

const PARTS = ["system", "history", "passages", "question", "reserved"];

/** The rows of the details drawer, or null where nothing is known. */
export function detailRows(answer) {
  const rows = [];
  const add = (key, value) => rows.push([t(`details.${key}`), value]);
  const { usage, timing } = answer;
  if (answer.model) add("model", answer.model);
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    add("prompt", t("details.promptValue", { tokens: number(usage.prompt_tokens), cached: number(cached) }));
    add("answer", writtenTokens(usage.completion_tokens, answer.maxTokens));
  }
  if (timing) {
    if (timing.queue_ms !== null && timing.queue_ms !== undefined) add("queue", duration(timing.queue_ms));
    if (timing.ttft_ms) add("ttft", duration(timing.ttft_ms));
    if (timing.tokens_per_s) add("speed", t("details.speedValue", { rate: number(timing.tokens_per_s, 1) }));
    if (timing.total_ms) add("total", duration(timing.total_ms));
  }
  if (answer.finishDetail) {
    const { finishReason: reason, finishDetail: detail } = answer;
    add("finish", reason === detail.type ? reason : `${reason} · ${detail.type}`);
  }
  if (rows.length === 0) return null;
  return element(
    "dl",
    { class: "details-rows" },
    rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
  );
}

function writtenTokens(count, limit) {
  if (limit === null) return plural("details.tokens", count);
  return t("details.tokensOfLimit", { count: number(count), limit: number(limit) });
}

/** A bar that shows what filled the model's window, with a legend; null without a report. */
export function contextMeter(context) {
  if (context === null || !context.window) return null;
  const parts = PARTS.map((part) => [part, context[part] ?? 0]).filter(([, tokens]) => tokens > 0);
  const used = parts.reduce((sum, [, tokens]) => sum + tokens, 0);
  const free = Math.max(0, context.window - used);
  const bar = element("div", { class: "meter-bar", "aria-hidden": "true" });
  for (const [part, tokens] of [...parts, ["free", free]]) {
    const piece = element("span", { class: `meter-piece meter-${part}` });
    piece.style.flexGrow = String(tokens);
    bar.append(piece);
  }
  const legend = element(
    "ul",
    { class: "meter-legend" },
    [...parts, ["free", free]].map(([part, tokens]) =>
      element("li", {}, element("span", { class: `meter-key meter-${part}` }), `${t(`context.${part}`)} ${number(tokens)}`),
    ),
  );
  const title = t("context.title", { window: number(context.window) });
  return element("div", { class: "meter" }, element("p", { class: "meter-title" }, title), bar, legend);
}
