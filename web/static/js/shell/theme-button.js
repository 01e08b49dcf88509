// The button that goes through the themes.

import { fill, icon } from "../elements.js";
import { onLanguageChange, t } from "../i18n.js";
import { nextTheme, theme } from "../preferences.js";

/** Makes `button` show the theme and change it. */
export function themeButton(button) {
  const show = () => {
    const name = { "": "auto", light: "sun", dark: "moon" }[theme()];
    fill(button, icon(name));
    button.title = t(`theme.${name}`);
    button.setAttribute("aria-label", t(`theme.${name}`));
  };
  button.addEventListener("click", () => {
    nextTheme();
    show();
  });
  onLanguageChange(show);
  show();
}
