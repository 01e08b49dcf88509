// The context meter: what fills the model's window.

import { element } from "../elements.js";
import { number, t } from "../i18n.js";
import { helpMark } from "./help-link.js";

const PARTS = ["system", "summary", "history", "passages", "question"];

/**
 * A bar of what fills the model's window and what is free, with a legend; null without a
 * report of parts.
 */
export function meter(context) {
  if (!context?.window) return null;
  const parts = partsOf(context);
  if (parts.length === 1) return null;
  const bar = element("div", { class: "meter-bar", "aria-hidden": "true" });
  for (const [part, tokens] of parts) {
    const piece = element("span", { class: `meter-piece meter-${part}` });
    piece.style.flexGrow = String(tokens);
    bar.append(piece);
  }
  const legend = parts.map(([part, tokens]) =>
    element("li", {}, element("span", { class: `meter-key meter-${part}` }), `${t(`context.${part}`)} ${number(tokens)}`),
  );
  return element(
    "div",
    { class: "meter" },
    element("p", { class: "meter-title" }, t("context.title", { window: number(context.window) }), helpMark("window", t("details.window"))),
    bar,
    element("ul", { class: "meter-legend" }, legend),
  );
}

/**
 * [name, tokens] of each part that there is, in the order of the prompt, and of what is free: beside
 * what is kept for the answer, or beside the answer once it has ended (`window_used` is known).
 */
function partsOf(context) {
  // The report counts a summary as history: here it stands for itself.
  const history = Math.max(0, (context.history ?? 0) - (context.summary ?? 0));
  const parts = PARTS.map((part) => [part, part === "history" ? history : (context[part] ?? 0)]);
  const prompt = parts.reduce((sum, [, tokens]) => sum + tokens, 0);
  const { window_used: filled, reserved = 0 } = context;
  parts.push(filled ? ["answer", Math.max(0, filled - prompt)] : ["reserved", reserved]);
  const used = prompt + parts.at(-1)[1];
  return [...parts.filter(([, tokens]) => tokens > 0), ["free", Math.max(0, context.window - used)]];
}
