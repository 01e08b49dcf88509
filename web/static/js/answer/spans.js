// Spans of time as a reader counts them: whole seconds, and minutes once there are any.

import { number, t } from "../i18n.js";

const MINUTE_S = 60;
/** From here on an estimate in single seconds would claim too much. */
const ROUGH_FROM_S = 10;
const ROUGH_STEP_S = 5;

/** What has passed: "4 s", "1 min 5 s". `ms` may be anything that is not negative. */
export function elapsed(ms) {
  return spoken(Math.floor(ms / 1000));
}

/** What is to come, no finer than an estimate can be: "7 s", "40 s", "3 min". */
export function estimated(ms) {
  const seconds = Math.max(1, Math.ceil(ms / 1000));
  if (seconds >= 2 * MINUTE_S) return t("unit.min", { n: number(Math.round(seconds / MINUTE_S)) });
  return spoken(seconds < ROUGH_FROM_S ? seconds : Math.ceil(seconds / ROUGH_STEP_S) * ROUGH_STEP_S);
}

function spoken(seconds) {
  if (seconds < MINUTE_S) return t("unit.s", { n: number(seconds) });
  const minutes = number(Math.floor(seconds / MINUTE_S));
  const rest = seconds % MINUTE_S;
  return rest === 0 ? t("unit.min", { n: minutes }) : t("unit.minS", { m: minutes, s: number(rest) });
}
