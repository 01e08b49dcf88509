// The button that changes to the other language.

import { language, setLanguage } from "../i18n.js";

/** Makes `button` change it; its words are the template's. */
export function languageButton(button) {
  button.addEventListener("click", () => setLanguage(language() === "zh" ? "en" : "zh"));
}
