// Moments in the reader's language.

import { formatter } from "../i18n.js";

export function day(time) {
  return formatter("DateTimeFormat", { dateStyle: "medium" }).format(new Date(time));
}

export function moment(time) {
  return formatter("DateTimeFormat", { dateStyle: "medium", timeStyle: "short" }).format(new Date(time));
}
