// Moments in the reader's language, and days of a course's own calendar.

import { formatter } from "../i18n.js";

export function day(time) {
  return formatter("DateTimeFormat", { dateStyle: "medium" }).format(new Date(time));
}

/** `time` as it is in `zone` (see `zoneOf`). */
export function moment(time, zone) {
  return formatter("DateTimeFormat", { dateStyle: "medium", timeStyle: "short", timeZone: zone }).format(new Date(time));
}

/** The day of `time` in `zone` (see `zoneOf`), as a date field wants it: 2026-10-01. */
export function dayIn(time, zone) {
  // Swedish writes dates like that.
  return new Intl.DateTimeFormat("sv-SE", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit" }).format(new Date(time));
}

/** The time zone that the server counts a course's days in; UTC where it has none that is known here. */
export function zoneOf({ timezone }) {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: timezone || "UTC" }).resolvedOptions().timeZone;
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return "UTC";
  }
}
