// What a course is called, when it runs, who may see what, and its end.

import { request } from "../api.js";
import { element, fill } from "../elements.js";
import { keepFocus } from "../focus.js";
import { checkField, field, form, input, keepingFields, select } from "../forms.js";
import { t } from "../i18n.js";
import { confirmed } from "./dialogs.js";

export class Settings {
  #root;
  #page;

  constructor(root, page) {
    this.#root = root;
    this.#page = page;
  }

  get #path() {
    return `/api/courses/${encodeURIComponent(this.#page.course.id)}`;
  }

  async open() {
    this.refresh();
  }

  refresh() {
    const build = () => fill(this.#root, this.#form(), this.#end());
    keepFocus(this.#root, this.#root, () => keepingFields(this.#root, build));
  }

  #form() {
    const { course } = this.#page;
    const title = input("title", { value: course.title, required: true });
    const titleZh = input("title_zh", { value: course.title_zh ?? "" });
    const main = select("language", [["en", "English"], ["zh", "中文"]], course.language);
    const starts = input("starts_on", { type: "date", value: course.starts_on ?? "" });
    const weeks = input("num_weeks", { type: "number", min: 1, max: 60, value: course.num_weeks ?? "" });
    const zone = input("timezone", { value: course.timezone ?? "", list: "zones" });
    const zones = element("datalist", { id: "zones" }, (Intl.supportedValuesOf?.("timeZone") ?? []).map((name) => element("option", { value: name })));
    const names = input("shows_names", { type: "checkbox", checked: course.shows_names, class: "" });
    const open = input("is_open", { type: "checkbox", checked: course.is_open, class: "" });
    const days = input("retention_days", { type: "number", min: 1, value: course.retention_days ?? "" });
    const suggestions = element("textarea", { class: "input", name: "suggestions", rows: 4, dir: "auto" }, suggestionLines(course.suggestions));
    const number = (control) => (control.value === "" ? null : Number(control.value));
    const saved = element("span", { class: "row-note", role: "status" });
    const send = async () => {
      fill(saved);
      this.#page.course = await request("PATCH", this.#path, {
        title: title.value.trim(),
        title_zh: titleZh.value.trim() || null,
        language: main.value,
        starts_on: starts.value || null,
        num_weeks: number(weeks),
        timezone: zone.value.trim() || null,
        shows_names: names.checked,
        is_open: open.checked,
        retention_days: number(days),
        suggestions: suggestionsOf(suggestions.value),
      });
      fill(saved, t("save.saved"));
    };
    const part = (name, ...fields) => element("fieldset", { class: "card" }, element("legend", { class: "card-title" }, name), fields);
    return form(
      { label: t("settings.save"), send, buttons: [saved], attributes: { class: "form settings" } },
      part(
        t("settings.course"),
        element("div", { class: "field-grid" }, field(t("course.title"), title), field(t("course.titleZh"), titleZh), field(t("course.language"), main)),
        field(t("settings.suggestions"), suggestions, t("settings.suggestionsHint")),
      ),
      part(
        t("settings.calendar"),
        element("p", { class: "field-hint" }, t("settings.calendarText")),
        element("div", { class: "field-grid" }, field(t("course.startsOn"), starts, t("course.startsOnHint")), field(t("course.numWeeks"), weeks), field(t("course.timezone"), zone), zones),
      ),
      part(
        t("settings.privacy"),
        checkField(t("settings.names"), names, t("settings.namesHint")),
        checkField(t("settings.open"), open, t("settings.openHint")),
        field(t("settings.retention"), days, t("settings.retentionHint")),
      ),
    );
  }

  #end() {
    const { course } = this.#page;
    const isArchived = Boolean(course.archived_at);
    const archive = async () => {
      if (!isArchived && !(await confirmed(t("settings.archiveAsk"), t("settings.archive")))) return;
      await this.#page.attempt(async () => {
        this.#page.course = await request("PATCH", this.#path, { is_archived: !isArchived });
        this.refresh();
      });
    };
    const confirm = input("confirm", { autocomplete: "off" });
    const remove = async () => {
      await request("DELETE", this.#path, { confirm: confirm.value });
      location.assign("/teach");
    };
    return element(
      "section",
      { class: "card" },
      element("h2", { class: "card-title" }, t("settings.end")),
      element("p", { class: "field-hint" }, t(isArchived ? "settings.archivedText" : "settings.archiveText")),
      element("button", { class: "button", type: "button", onclick: archive, data: { action: "archive" } }, t(isArchived ? "settings.unarchive" : "settings.archive")),
      isArchived &&
        element(
          "details",
          { class: "more" },
          element("summary", {}, t("settings.delete")),
          form({ label: t("settings.deleteForEver"), send: remove, attributes: { class: "form form-danger" } }, field(t("settings.deleteConfirm", { title: course.title }), confirm, t("settings.deleteHint"))),
        ),
    );
  }
}

/** One question a line; its two languages, where it has both, with a bar between them. */
function suggestionLines(suggestions) {
  return (suggestions ?? []).map(({ en, zh }) => [en, zh].filter(Boolean).join(" | ")).join("\n");
}

const HAN = /\p{Script=Han}/u;

function suggestionsOf(text) {
  return text
    .split("\n")
    .map((line) => line.split("|").map((part) => part.trim()).filter(Boolean))
    .filter((parts) => parts.length > 0)
    .map(([first, second]) => {
      if (second) return { en: first, zh: second };
      return HAN.test(first) ? { zh: first } : { en: first };
    });
}
