// The sheet that explains the page's words and lists the keyboard's ways. Loaded when it is asked for.

import { element, icon } from "../elements.js";
import { language, readCatalogue, t } from "../i18n.js";
import { show } from "./dialogs.js";
import { SHORTCUTS, keyNames } from "./shortcuts.js";

/** What is explained, in this order; a name leads to it (help-link.js). */
const WORDS = {
  token: ["meaning.token", "meaning.tokenText"],
  window: ["meaning.window", "meaning.windowText"],
  passages: ["meaning.passages", "meaning.passagesText"],
  citation: ["meaning.citation", "meaning.citationText"],
  notFound: ["meaning.notFound", "meaning.notFoundText"],
  ending: ["meaning.ending", "meaning.endingText"],
  limit: ["meaning.limit", "meaning.limitText"],
  seam: ["meaning.seam", "meaning.seamText"],
  versions: ["meaning.versions", "meaning.versionsText"],
  figures: ["meaning.figures", "meaning.figuresText"],
};
/** The signs of how an answer ended: tone, drawing, meaning. */
const ENDINGS = [
  ["done", "check", "meaning.endingDone"],
  ["quiet", "info", "meaning.endingQuiet"],
  ["amber", "cut", "meaning.endingAmber"],
  ["red", "alert", "meaning.endingRed"],
];

/**
 * Opens it at `topic`: "keys", "words", or the name of a word. What the words mean is read now;
 * the keyboard's ways are shown without them where they cannot be.
 */
export async function showHelp(topic) {
  const meanings = await readCatalogue(`help.${language()}`).catch((error) => {
    if (topic === "keys") return null;
    throw error;
  });
  const tabs = [{ name: "keys", label: "help.keys", panel: keyboard() }];
  if (meanings !== null) tabs.unshift({ name: "words", label: "help.words", panel: glossary(meanings) });
  const isWord = topic in WORDS;
  const list = tabs.length > 1 ? tabList(tabs, isWord ? "words" : topic) : null;
  const node = show(
    { title: t("help.title"), className: "help-sheet" },
    list,
    tabs.map(({ panel }) => panel),
  );
  if (!isWord) return;
  const word = node.querySelector(`[data-word="${topic}"]`);
  word.classList.add("word-asked");
  word.focus({ preventScroll: true });
  word.scrollIntoView({ block: "start" });
}

function glossary(meanings) {
  const entries = Object.entries(WORDS).map(([name, [term, text]]) =>
    element(
      "div",
      { class: "word", tabindex: "-1", data: { word: name } },
      element("dt", {}, meanings[term]),
      element("dd", {}, meanings[text], name === "ending" ? endings(meanings) : null),
    ),
  );
  return element("div", {}, element("dl", { class: "words" }, entries));
}

function endings(meanings) {
  const items = ENDINGS.map(([tone, drawing, meaning]) =>
    element("li", {}, element("span", { class: `sign sign-${tone}` }, icon(drawing)), meanings[meaning]),
  );
  return element("ul", { class: "endings" }, items);
}

function keyboard() {
  const rows = SHORTCUTS.map((shortcut) =>
    element(
      "tr",
      { data: { shortcut: shortcut.id } },
      element("th", { scope: "row" }, t(shortcut.label)),
      element("td", {}, keyNames(shortcut).flatMap((name, at) => [at > 0 && " ", element("kbd", {}, name)])),
    ),
  );
  return element(
    "div",
    {},
    element("p", { class: "dialog-text" }, t("help.touch")),
    element("table", { class: "shortcuts" }, element("tbody", {}, rows)),
  );
}

/** Tabs over their panels: one is in the Tab key's way, the arrows go to the other. */
function tabList(tabs, shown) {
  const buttons = tabs.map(({ name, label, panel }) => {
    panel.setAttribute("role", "tabpanel");
    panel.id = `help-${name}`;
    const attributes = { class: "help-tab", id: `help-tab-${name}`, type: "button", role: "tab", "aria-controls": panel.id };
    panel.setAttribute("aria-labelledby", attributes.id);
    return element("button", attributes, t(label));
  });
  const choose = (chosen) => {
    for (const [index, { panel }] of tabs.entries()) {
      panel.hidden = index !== chosen;
      buttons[index].setAttribute("aria-selected", String(index === chosen));
      buttons[index].tabIndex = index === chosen ? 0 : -1;
    }
  };
  for (const [index, button] of buttons.entries()) button.addEventListener("click", () => choose(index));
  choose(tabs.findIndex(({ name }) => name === shown));
  const list = element("div", { class: "help-tabs", role: "tablist", "aria-label": t("help.title") }, buttons);
  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    const next = 1 - buttons.indexOf(document.activeElement);
    choose(next);
    buttons[next].focus();
  });
  return list;
}
