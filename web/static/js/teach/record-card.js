// One record of the log: question and answer, how it ended, its sources and what its reader thought.

import { element, icon } from "../elements.js";
import { language, plural, t } from "../i18n.js";
import { locatorText, withMarks } from "../sources/places.js";
import { cleaned } from "../answer/seams.js";
import { moment } from "./dates.js";

const TONES = { down: "red", error: "red", up: "done" };

/** `zone`: of the course, whose days the log is looked through by. */
export function recordCard(record, zone) {
  return element(
    "li",
    { class: "record", data: { id: record.id } },
    element(
      "header",
      { class: "record-head" },
      element("span", { class: "record-who", dir: "auto" }, record.asked_by.label),
      element("time", { datetime: record.asked_at }, moment(record.asked_at, zone)),
      record.kinds.map((kind) => element("span", { class: `badge badge-${TONES[kind] ?? "amber"}` }, t(`kinds.${kind}`))),
    ),
    element("p", { class: "record-question", dir: "auto" }, cleaned(record.question)),
    element("p", { class: "record-answer", dir: "auto" }, cleaned(record.answer)),
    record.notices?.map((notice) => element("p", { class: "material-warning" }, language() === "zh" ? notice.zh : notice.en)),
    record.feedback?.note ? element("blockquote", { class: "record-note", dir: "auto" }, cleaned(record.feedback.note)) : null,
    element(
      "div",
      { class: "record-foot" },
      sources(record),
      element("a", { class: "link-button", href: `/records/${encodeURIComponent(record.id)}`, target: "_blank" }, icon("external"), t("log.print")),
    ),
  );
}

function sources({ sources: all }) {
  const used = all.filter((source) => source.used || source.is_cited);
  const shown = used.length > 0 ? used : all;
  if (shown.length === 0) return element("span", { class: "field-hint" }, t("log.noSources"));
  return element(
    "details",
    { class: "more" },
    element("summary", {}, plural("log.sources", shown.length)),
    element(
      "ol",
      { class: "passage-list" },
      shown.map((source) =>
        element(
          "li",
          {},
          element("p", { class: "passage-head", dir: "auto" }, [`[${source.n}] ${source.title}`, locatorText(source)].filter(Boolean).join(" · ")),
          element("p", { class: "passage-text", dir: "auto" }, withMarks(source.text, source.marks ?? [], (text) => element("mark", {}, text))),
        ),
      ),
    ),
  );
}
