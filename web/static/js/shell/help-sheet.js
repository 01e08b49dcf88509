// The sheet that lists the keyboard's ways. Loaded when it is asked for.

import { element } from "../elements.js";
import { t } from "../i18n.js";
import { show } from "./dialogs.js";
import { SHORTCUTS, keyNames } from "./shortcuts.js";

export function showHelp() {
  const rows = SHORTCUTS.map((shortcut) =>
    element(
      "tr",
      { data: { shortcut: shortcut.id } },
      element("th", { scope: "row" }, t(shortcut.label)),
      element("td", {}, keyNames(shortcut).flatMap((name, at) => [at > 0 && " ", element("kbd", {}, name)])),
    ),
  );
  show(
    { title: t("help.title"), className: "help-sheet" },
    element("p", { class: "dialog-text" }, t("help.touch")),
    element("table", { class: "shortcuts" }, element("tbody", {}, rows)),
  );
}
