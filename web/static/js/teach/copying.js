// A text to pass on, with a button that copies it.

import { copyText } from "../answer/code-blocks.js";
import { element, icon } from "../elements.js";
import { t } from "../i18n.js";

export function copyable(text, { label, code = false } = {}) {
  const word = element("span", {}, t("action.copy"));
  const button = element("button", { class: "button", type: "button", "aria-label": label ?? t("action.copy") }, icon("copy"), word);
  button.addEventListener("click", async () => {
    word.textContent = t((await copyText(text)) ? "code.copied" : "code.copyFailed");
  });
  return element("div", { class: "copyable" }, element("code", { class: code ? "join-code" : "copy-text" }, text), button);
}
