// Copying without looking for the button: the last answer, its last code.

import { copyText } from "../answer/code-blocks.js";
import { t } from "../i18n.js";

/** Copies an answer's text; what came of it goes to `say`. False: there is none. */
export function copyAnswer(answer, say) {
  return Boolean(answer?.text) && copy(answer.text, say);
}

/** Copies the last code below `root`. False: there is none. */
export function copyCode(root, say) {
  const code = [...root.querySelectorAll(".answer > .prose .code code")].at(-1);
  return code !== undefined && copy(code.textContent, say);
}

function copy(text, say) {
  copyText(text).then((copied) => say(t(copied ? "code.copied" : "code.copyFailed")));
  return true;
}
