// Sizes of files, in words.

import { number, t } from "../i18n.js";

export function sizeText(bytes) {
  if (bytes < 1e6) return t("unit.kb", { n: number(Math.max(1, bytes / 1e3)) });
  return bytes < 1e9 ? t("unit.mb", { n: number(bytes / 1e6, 1) }) : t("unit.gb", { n: number(bytes / 1e9, 1) });
}
