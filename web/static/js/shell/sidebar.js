// Courses and conversations. On a narrow screen a drawer.

import { api } from "../api.js";
import { element, fill } from "../elements.js";
import { language, languageTag, t } from "../i18n.js";

const DAY_MS = 86_400_000;

/** Events: "course" (detail: id), "open" (detail: conversation id), "new". */
export class Sidebar extends EventTarget {
  #root;
  #select;
  #list;
  #backdrop;
  #opener;
  #narrow = window.matchMedia("(max-width: 860px)");
  #courses = [];
  #conversations = null;
  #current = null;

  constructor({ root, backdrop, opener }) {
    super();
    this.#root = root;
    this.#backdrop = backdrop;
    this.#opener = opener;
    this.#select = root.querySelector(".course-select");
    this.#list = root.querySelector(".conversations");
    this.#select.addEventListener("change", () => this.#tell("course", this.#select.value));
    root.querySelector(".new-conversation").addEventListener("click", (event) => {
      event.preventDefault();
      this.close();
      this.#tell("new");
    });
    opener.addEventListener("click", () => this.#setOpen(true));
    root.querySelector(".sidebar-close").addEventListener("click", () => this.close());
    backdrop.addEventListener("click", () => this.close());
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
    this.#list.addEventListener("click", (event) => this.#clicked(event));
    this.#narrow.addEventListener("change", () => this.#setOpen(false));
    this.#setOpen(false);
  }

  showCourses(courses, current) {
    this.#courses = courses;
    fill(this.#select, courses.map((course) => element("option", { value: course.id }, courseTitle(course))));
    this.#select.value = current ?? "";
    this.#select.disabled = courses.length < 2;
  }

  /** Reads the list again: a title or an order may have changed. */
  async reload(course) {
    try {
      this.#conversations = await api.conversations(course);
    } catch {
      // The list stays as it was; the next change reads it again.
      this.#conversations ??= [];
    }
    this.#render();
  }

  set current(conversation) {
    this.#current = conversation;
    this.#render();
  }

  refresh() {
    for (const option of this.#select.options) {
      const course = this.#courses.find(({ id }) => id === option.value);
      if (course) option.textContent = courseTitle(course);
    }
    this.#render();
  }

  close() {
    if (this.#narrow.matches && this.#root.classList.contains("is-open")) {
      this.#setOpen(false);
      this.#opener.focus();
    }
  }

  #setOpen(open) {
    const isDrawer = this.#narrow.matches;
    this.#root.classList.toggle("is-open", open);
    this.#root.inert = isDrawer && !open;
    this.#backdrop.hidden = !(isDrawer && open);
    this.#opener.setAttribute("aria-expanded", String(open));
    if (isDrawer && open) this.#root.querySelector(".sidebar-close").focus();
  }

  #render() {
    if (this.#conversations === null) return;
    if (this.#conversations.length === 0) {
      fill(this.#list, element("p", { class: "conversations-none" }, t("sidebar.none")));
      return;
    }
    const groups = new Map();
    for (const conversation of this.#conversations) {
      const name = dayName(conversation.updated_at);
      groups.set(name, [...(groups.get(name) ?? []), conversation]);
    }
    fill(
      this.#list,
      [...groups].map(([name, conversations]) =>
        element(
          "section",
          {},
          element("h2", { class: "conversations-day" }, name),
          element("ul", {}, conversations.map((conversation) => element("li", {}, this.#link(conversation)))),
        ),
      ),
    );
  }

  #link({ id, title }) {
    return element(
      "a",
      { href: `/c/${encodeURIComponent(id)}`, class: "conversation", "aria-current": id === this.#current ? "page" : null, data: { id }, dir: "auto" },
      title || t("sidebar.untitled"),
    );
  }

  #clicked(event) {
    const link = event.target.closest("a.conversation");
    if (link === null || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    this.close();
    this.#tell("open", link.dataset.id);
  }

  #tell(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** A course's title in the page's language. */
export function courseTitle(course) {
  return (language() === "zh" && course.title_zh) || course.title;
}

function dayName(time) {
  const date = new Date(time);
  const today = new Date();
  today.setHours(0, 0, 0, 0);
  if (Number.isNaN(date.getTime())) return t("sidebar.earlier");
  if (date >= today) return t("sidebar.today");
  if (date >= today - DAY_MS) return t("sidebar.yesterday");
  if (date >= today - 6 * DAY_MS) return t("sidebar.week");
  return new Intl.DateTimeFormat(languageTag(), { year: "numeric", month: "long" }).format(date);
}
