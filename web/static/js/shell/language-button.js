// The button that changes to the other language.

import { language, setLanguage, t } from "../i18n.js";
import { ProblemBar } from "./problem-bar.js";

/**
 * Makes `button` change it; its words are the template's. `tell(words)` is called where the language
 * could not be had, and with null once it could after all; by default the page's bar for problems
 * says it.
 */
export function languageButton(button, tell = tellInBar) {
  let isTold = false;
  button.addEventListener("click", async () => {
    const isChanged = await setLanguage(language() === "zh" ? "en" : "zh");
    if (!isChanged) tell(t("language.failed"));
    else if (isTold) tell(null);
    isTold = !isChanged;
  });
}

function tellInBar(words) {
  const bar = new ProblemBar(document.querySelector("#problem"));
  if (words === null) bar.hide();
  else bar.show(words);
}
