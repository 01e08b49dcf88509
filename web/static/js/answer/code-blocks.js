// Code in answers: a head with the language and a copy button; highlighted once its fence closes.

import { element, icon } from "../elements.js";
import { t } from "../i18n.js";
import { sanitizeHighlighted } from "./markdown.js";

const LONGEST_HIGHLIGHTED = 60_000;
const COPIED_MS = 1600;

let highlighter = null;

/** Dresses the code blocks below `root` that are not dressed yet. */
export function dressCode(root) {
  for (const block of root.querySelectorAll(".code:not(.code-dressed)")) {
    block.classList.add("code-dressed");
    const { language } = block.dataset;
    block.prepend(
      element("div", { class: "code-head" }, element("span", { class: "code-language" }, language || "text"), copyButton(block)),
    );
    if (block.dataset.closed === "true") highlight(block);
  }
}

/** The closing line of a block that was shown open has come, or the answer ended without it. */
export function closeCode(block) {
  block.dataset.closed = "true";
  highlight(block);
}

async function highlight(block) {
  const code = block.querySelector("code");
  const { language } = block.dataset;
  const text = code.textContent;
  if (!language || text.length > LONGEST_HIGHLIGHTED) return;
  highlighter ??= import("../../vendor/highlight.js-11.12.0/highlight.min.js");
  let hljs;
  try {
    hljs = (await highlighter).default;
  } catch {
    highlighter = null;
    return;
  }
  if (!hljs.getLanguage(language) || code.textContent !== text) return;
  const { value } = hljs.highlight(text, { language, ignoreIllegals: true });
  code.replaceChildren(sanitizeHighlighted(value));
}

function copyButton(block) {
  const label = element("span", {}, t("code.copy"));
  const button = element("button", { class: "code-copy", type: "button" }, icon("copy"), label);
  button.addEventListener("click", async () => {
    const copied = await copyText(block.querySelector("code").textContent);
    label.textContent = t(copied ? "code.copied" : "code.copyFailed");
    setTimeout(() => (label.textContent = t("code.copy")), COPIED_MS);
  });
  return button;
}

/** Puts text on the clipboard; also where the page is plain http. Returns whether it worked. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { class: "visually-hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}
