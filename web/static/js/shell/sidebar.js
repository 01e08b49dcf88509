// Courses, the search and the conversations. On a narrow screen a drawer.

import { element, fill } from "../elements.js";
import { language } from "../i18n.js";
import { ConversationList, opensElsewhere } from "./conversation-list.js";
import { Search } from "./search.js";
import { UnsentList } from "./unsent-list.js";

/**
 * Events: "course" (detail: id), "open" (detail: {id, message}), "new", "listed" (detail: the
 * conversations that were read), "open-unsent" and "discard-unsent" (detail: the key of one of
 * `unsent`), "say" and "failed" (detail: words).
 */
export class Sidebar extends EventTarget {
  #root;
  #select;
  #list;
  #unsent;
  #search;
  #backdrop;
  #opener;
  #narrow = window.matchMedia("(max-width: 860px)");
  #courses = [];

  /** `actions`: what a conversation's menu calls: {rename(conversation), remove(conversation)}. */
  constructor({ root, backdrop, opener, actions }) {
    super();
    this.#root = root;
    this.#backdrop = backdrop;
    this.#opener = opener;
    this.#select = root.querySelector(".course-select");
    this.#list = new ConversationList(root.querySelector(".conversations"), actions);
    this.#unsent = new UnsentList(root.querySelector(".unsent"));
    this.#search = new Search(root.querySelector(".search-input"));
    this.#select.addEventListener("change", () => this.#tell("course", this.#select.value));
    for (const link of document.querySelectorAll("a.new-conversation, a.topbar-new")) {
      link.addEventListener("click", (event) => {
        if (opensElsewhere(event)) return;
        event.preventDefault();
        this.close();
        this.#tell("new");
      });
    }
    this.#list.addEventListener("open", ({ detail }) => {
      this.close();
      this.#tell("open", detail);
    });
    this.#unsent.addEventListener("open", ({ detail }) => {
      this.close();
      this.#tell("open-unsent", detail);
    });
    this.#unsent.addEventListener("discard", ({ detail }) => this.#tell("discard-unsent", detail));
    this.#list.addEventListener("listed", ({ detail }) => this.#tell("listed", detail));
    this.#search.addEventListener("found", ({ detail }) => this.#list.showFound(detail.query, detail.conversations));
    for (const type of ["say", "failed"]) this.#search.addEventListener(type, ({ detail }) => this.#tell(type, detail));
    opener.addEventListener("click", () => this.#setOpen(true));
    root.querySelector(".sidebar-close").addEventListener("click", () => this.close());
    backdrop.addEventListener("click", () => this.close());
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !event.isComposing && this.close()) event.preventDefault();
    });
    this.#narrow.addEventListener("change", () => this.#setOpen(false));
    this.#setOpen(false);
  }

  showCourses(courses, current) {
    this.#courses = courses;
    fill(this.#select, courses.map((course) => element("option", { value: course.id }, courseTitle(course))));
    this.#select.value = current ?? "";
    this.#select.disabled = courses.length < 2;
  }

  /** Reads the list of `course` (null: of none) again: a title or an order may have changed. */
  reload(course) {
    this.#search.course = course;
    if (course === null) return;
    this.#list.reload(course);
    this.#search.refresh();
  }

  /** What was looked for is no more what its reader wants to see. */
  endSearch() {
    if (this.#search.query) this.#search.clear();
  }

  set current(conversation) {
    this.#list.current = conversation;
  }

  /** What only this page knows, of all courses. */
  set unsent(items) {
    this.#unsent.show(items);
  }

  rename(id, title) {
    this.#list.rename(id, title);
  }

  remove(id) {
    this.#list.remove(id);
  }

  refresh() {
    for (const option of this.#select.options) {
      const course = this.#courses.find(({ id }) => id === option.value);
      if (course) option.textContent = courseTitle(course);
    }
    this.#unsent.refresh();
    this.#list.refresh();
  }

  /** Opens the drawer, if it is one, at the search. */
  search() {
    if (this.#narrow.matches) this.#setOpen(true);
    this.#search.focus();
  }

  /** Closes the drawer; whether it was open. */
  close() {
    if (!this.#narrow.matches || !this.#root.classList.contains("is-open")) return false;
    this.#setOpen(false);
    this.#opener.focus();
    return true;
  }

  #setOpen(open) {
    const isDrawer = this.#narrow.matches;
    this.#root.classList.toggle("is-open", open);
    this.#root.inert = isDrawer && !open;
    this.#backdrop.hidden = !(isDrawer && open);
    this.#opener.setAttribute("aria-expanded", String(open));
    if (isDrawer && open) this.#root.querySelector(".sidebar-close").focus();
  }

  #tell(type, detail = null) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** A course's title in the page's language. */
export function courseTitle(course) {
  return (language() === "zh" && course.title_zh) || course.title;
}
