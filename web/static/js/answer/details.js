// The details of an answer: what it cost, how fast it was, and how the model's window was filled.

import { element, icon } from "../elements.js";
import { duration, formatter, number, plural, t } from "../i18n.js";
import { helpWords } from "./help-link.js";
import { meter } from "./meter.js";

/** The drawer's content for an answer that has ended, or null where nothing is known of it. */
export function details(answer) {
  const rows = detailRows(answer);
  // Where no model was asked, nothing fills its window.
  const window = answer.notFound ? null : meter(answer.context);
  if (rows.length === 0 && window === null) return null;
  return [
    element(
      "dl",
      { class: "details-rows" },
      rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))),
    ),
    window,
    element("p", { class: "details-links" }, answer.id !== null ? printLink(answer.id) : null, helpWords("token")),
  ];
}

/** The few figures that stand beside the drawer's button. */
export function brief({ usage, timing }) {
  const figures = [];
  if (usage?.completion_tokens > 0) figures.push(plural("details.tokens", usage.completion_tokens));
  if (timing?.tokens_per_s) figures.push(speed(timing));
  return figures.join(" · ");
}

/** [[name, value]], both strings. */
function detailRows(answer) {
  const rows = [];
  const { usage, timing, finishDetail: detail } = answer;
  const add = (key, value) => rows.push([t(`details.${key}`), value]);
  if (answer.model) add("model", answer.model);
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    add("prompt", t("details.promptValue", { tokens: number(usage.prompt_tokens), cached: number(cached) }));
    addWritten(add, answer);
  }
  const { context, passages } = answer;
  // Where some were, the sources list them.
  const isAllRead = passages.length > 0 && passages.every(({ used }) => used) && !answer.passagesDropped;
  if (isAllRead && !answer.notFound) add("leftOut", t("details.none"));
  const turns = answer.notFound ? "" : turnsOf(context ?? {});
  if (turns) add("turns", turns);
  if (context?.window_used) {
    add("window", t("details.windowValue", { used: number(context.window_used), window: number(context.window) }));
  }
  if (timing) {
    if (isKnown(timing.queue_ms)) add("queue", duration(timing.queue_ms));
    if (timing.ttft_ms) add("ttft", duration(timing.ttft_ms));
    if (timing.tokens_per_s) add("speed", speed(timing));
    if (timing.total_ms) add("total", duration(timing.total_ms));
  }
  if (usage?.cost) add("cost", money(usage.cost));
  if (detail) add("finish", words(answer.finishReason, detail));
  return rows;
}

/** What became of the questions before; "" where there are none, or nothing is known of them. */
function turnsOf({ turns_kept: kept = 0, turns_dropped: dropped = 0, turns_skipped: skipped = 0 }) {
  const told = [];
  if (dropped > 0) told.push(t("details.turnsDropped", { count: number(dropped) }));
  if (skipped > 0) told.push(t("details.turnsSkipped", { count: number(skipped) }));
  if (kept > 0 || told.length > 0) told.unshift(t("details.turnsRead", { count: number(kept) }));
  return told.join(" · ");
}

/** A limit is that of one part: beside the sum of several it would tell an untruth. */
function addWritten(add, { usage, maxTokens, maxTokensLowered, thinkingMs }) {
  const count = number(usage.completion_tokens);
  if ((usage.parts ?? []).length > 1) {
    add("answer", t("details.tokensInParts", { count, parts: usage.parts.map(ofLimit).join(" + ") }));
  } else if (maxTokens !== null) {
    const key = maxTokensLowered ? "details.tokensOfLowered" : "details.tokensOfLimit";
    add("answer", t(key, { count, limit: number(maxTokens) }));
  } else {
    add("answer", plural("details.tokens", usage.completion_tokens));
  }
  const thought = usage.completion_tokens_details?.reasoning_tokens ?? 0;
  if (thought === 0) return;
  const figures = [plural("details.tokens", thought), isKnown(thinkingMs) ? duration(thinkingMs) : null];
  add("thinking", figures.filter(Boolean).join(" · "));
}

function ofLimit({ completion_tokens: tokens, max_tokens: limit }) {
  const count = number(tokens);
  return isKnown(limit) ? t("details.partOfLimit", { count, limit: number(limit) }) : count;
}

function speed(timing) {
  return t("details.speedValue", { rate: number(timing.tokens_per_s, 1) });
}

/** `amount` may be a small part of a cent: two digits of it tell enough. */
function money({ amount, currency }) {
  const digits = { maximumSignificantDigits: 2, minimumFractionDigits: 2, roundingPriority: "morePrecision" };
  return formatter("NumberFormat", { style: "currency", currency, ...digits }).format(amount);
}

function words(reason, { type, in: place }) {
  return [reason, type === reason ? null : type, place ?? null].filter(Boolean).join(" · ");
}

function isKnown(value) {
  return value !== null && value !== undefined;
}

function printLink(id) {
  const address = `/records/${encodeURIComponent(id)}`;
  return element("a", { class: "link-button", href: address, target: "_blank", rel: "noopener" }, icon("external"), t("details.print"));
}
