// Days and moments in the reader's language. Days are those of the calendar where the reader is: not
// 24 hours, since a day on which the clock is changed has 23 or 25.

import { formatter, t } from "./i18n.js";

/** A moment as short as tells it from others: the time, with its day where that is not today. */
export function moment(date, now = new Date()) {
  if (Number.isNaN(date.getTime())) return "";
  const time = { hour: "numeric", minute: "2-digit" };
  const isToday = date.toDateString() === now.toDateString();
  return formatter("DateTimeFormat", isToday ? time : { month: "short", day: "numeric", ...time }).format(date);
}

/** The name of the group that `date` stands in: today, yesterday, the past week, a month. */
export function dayGroup(date, now = new Date()) {
  if (Number.isNaN(date.getTime())) return t("sidebar.earlier");
  const day = (before) => new Date(now.getFullYear(), now.getMonth(), now.getDate() - before);
  if (date >= day(0)) return t("sidebar.today");
  if (date >= day(1)) return t("sidebar.yesterday");
  if (date >= day(6)) return t("sidebar.week");
  return formatter("DateTimeFormat", { year: "numeric", month: "long" }).format(date);
}
