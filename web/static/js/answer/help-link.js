// What leads from a word of the page to its meaning: the help sheet, loaded then.

import { element } from "../elements.js";
import { t } from "../i18n.js";

/** A small "?" beside `term`; `name`: what the sheet calls it (help-sheet.js). */
export function helpMark(name, term) {
  const label = t("help.about", { term });
  return helpButton(name, { class: "help-link", "aria-label": label, title: label }, "?");
}

/** The same in words, to all that is explained from `name` on. */
export function helpWords(name) {
  return helpButton(name, { class: "link-button" }, t("help.words"));
}

function helpButton(name, attributes, content) {
  const button = element("button", { type: "button", ...attributes }, content);
  button.addEventListener("click", () => explain(name));
  return button;
}

/** Tells ("failed", with words for people) that the sheet could not be loaded. */
export const help = new EventTarget();

let opening = null;

/** Shows the sheet at `name`: once, however often it is asked for until it is there. */
export function explain(name) {
  opening ??= open(name).finally(() => {
    opening = null;
  });
}

async function open(name) {
  try {
    const { showHelp } = await import("../shell/help-sheet.js");
    await showHelp(name);
  } catch {
    help.dispatchEvent(new CustomEvent("failed", { detail: t("error.offline") }));
  }
}
