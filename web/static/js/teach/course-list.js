// A teacher's courses, and making one.

import { api, request } from "../api.js";
import { element, fill } from "../elements.js";
import { field, form, input, keepingFields, select } from "../forms.js";
import { language, number, plural, t } from "../i18n.js";
import { ServerCard } from "./server-card.js";

export class CourseList {
  #root;
  #page;
  #courses = [];
  #server = new ServerCard();

  constructor(root, page) {
    this.#root = root;
    this.#page = page;
  }

  async open() {
    this.#courses = await api.courses();
    this.refresh();
    if (this.#page.me.role === "teacher") await this.#server.open();
  }

  close() {
    this.#server.close();
  }

  refresh() {
    keepingFields(this.#root, () => this.#build());
    this.#server.refresh();
  }

  #build() {
    const isTeacher = this.#page.me.role === "teacher";
    const taught = this.#courses.filter(({ role }) => role === "teacher");
    fill(
      this.#root,
      element("h1", { class: "page-title" }, t("teach.courses")),
      taught.length > 0 ? element("ul", { class: "course-cards" }, taught.map(card)) : null,
      isTeacher ? this.#create(taught.length === 0) : element("p", { class: "empty" }, t("courses.teachersOnly"), " ", element("a", { href: "/" }, t("courses.toChat"))),
      this.#server.root,
    );
  }

  #create(isFirst) {
    const title = input("title", { required: true });
    const titleZh = input("title_zh");
    const starts = input("starts_on", { type: "date" });
    const weeks = input("num_weeks", { type: "number", min: 1, max: 60 });
    const main = select("language", [["en", "English"], ["zh", "中文"]], language());
    const send = async () => {
      const made = await request("POST", "/api/courses", {
        title: title.value.trim(),
        title_zh: titleZh.value.trim() || null,
        language: main.value,
        starts_on: starts.value || null,
        num_weeks: weeks.value ? Number(weeks.value) : null,
        timezone: Intl.DateTimeFormat().resolvedOptions().timeZone || null,
      });
      location.assign(`/teach/${encodeURIComponent(made.slug)}`);
    };
    const node = form(
      { label: t("courses.create"), send },
      field(t("course.title"), title),
      element(
        "details",
        { class: "more" },
        element("summary", {}, t("courses.more")),
        element(
          "div",
          { class: "field-grid" },
          field(t("course.titleZh"), titleZh),
          field(t("course.language"), main),
          field(t("course.startsOn"), starts, t("course.startsOnHint")),
          field(t("course.numWeeks"), weeks),
        ),
      ),
    );
    return element("section", { class: "card" }, element("h2", { class: "card-title" }, t(isFirst ? "courses.createFirst" : "courses.createNew")), node);
  }
}

function card(course) {
  const facts = [
    course.week && t("course.week", { n: number(course.week) }),
    plural("course.materials", course.num_materials),
    course.archived_at && t("course.archived"),
  ];
  return element(
    "li",
    {},
    element(
      "a",
      { class: "course-card", href: `/teach/${encodeURIComponent(course.slug)}` },
      element("span", { class: "course-card-title" }, (language() === "zh" && course.title_zh) || course.title),
      element("span", { class: "course-card-facts" }, facts.filter(Boolean).join(" · ")),
    ),
  );
}
