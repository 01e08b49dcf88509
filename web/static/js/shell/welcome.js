// What an empty conversation shows: the course and questions to begin with.

import { element, fill } from "../elements.js";
import { language, t } from "../i18n.js";
import { courseTitle } from "./sidebar.js";

const MOST_SUGGESTIONS = 6;

/** Fills `root` for `course` (null for who is in none); `ask(text)` is called on a click. */
export function showWelcome(root, course, ask) {
  if (course === null) {
    fill(
      root,
      element("h2", { class: "welcome-title" }, t("welcome.noCourse")),
      element("p", { class: "welcome-text" }, t("welcome.noCourseText")),
      element("p", {}, element("a", { class: "action", href: "/join" }, t("account.join"))),
    );
    return;
  }
  const suggestions = suggestionsOf(course);
  fill(
    root,
    element("p", { class: "welcome-course" }, courseTitle(course)),
    element("h2", { class: "welcome-title" }, t("welcome.title")),
    element("p", { class: "welcome-text" }, t("welcome.text")),
    suggestions.length > 0 &&
      element(
        "ul",
        { class: "suggestions", "aria-label": t("welcome.suggestions") },
        suggestions.map((text) => {
          const button = element("button", { type: "button", class: "suggestion", dir: "auto" }, text);
          button.addEventListener("click", () => ask(text));
          return element("li", {}, button);
        }),
      ),
  );
}

/** Suggestions are texts, or texts by language. */
function suggestionsOf(course) {
  const texts = (course.suggestions ?? []).map((suggestion) =>
    typeof suggestion === "string" ? suggestion : (suggestion[language()] ?? Object.values(suggestion)[0]),
  );
  return [...new Set(texts.filter(Boolean))].slice(0, MOST_SUGGESTIONS);
}
