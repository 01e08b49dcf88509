// Moments in the reader's language.

import { languageTag } from "../i18n.js";

export function day(time) {
  return new Intl.DateTimeFormat(languageTag(), { dateStyle: "medium" }).format(new Date(time));
}

export function moment(time) {
  return new Intl.DateTimeFormat(languageTag(), { dateStyle: "medium", timeStyle: "short" }).format(new Date(time));
}
