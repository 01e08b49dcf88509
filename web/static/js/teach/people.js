// Who is in the course, and how others come in.

import { request } from "../api.js";
import { element, fill } from "../elements.js";
import { keepFocus } from "../focus.js";
import { plural, t } from "../i18n.js";
import { copyable } from "./copying.js";
import { day } from "./dates.js";
import { confirmed, dialog } from "./dialogs.js";

export class People {
  #root;
  #page;
  #people = [];

  constructor(root, page) {
    this.#root = root;
    this.#page = page;
  }

  get #path() {
    return `/api/courses/${encodeURIComponent(this.#page.course.id)}`;
  }

  async open() {
    const found = await this.#page.read(() => request("GET", `${this.#path}/people`), () => this.#root.isConnected);
    if (found !== undefined) this.#people = found.people;
    this.refresh();
  }

  refresh() {
    keepFocus(this.#root, () => this.#root.querySelector(".section-title"), () => this.#build());
  }

  #build() {
    const students = this.#people.filter(({ role }) => role === "student").length;
    fill(
      this.#root,
      this.#joining(),
      element(
        "section",
        {},
        element("h2", { class: "section-title" }, plural("people.students", students)),
        this.#people.length > 0 ? this.#table() : null,
        this.#page.course.shows_names ? null : element("p", { class: "field-hint" }, t("people.anonymous")),
      ),
      element(
        "section",
        { class: "card" },
        element("h2", { class: "card-title" }, t("people.inviteTitle")),
        element("p", { class: "field-hint" }, t("people.inviteText")),
        element("button", { class: "button", type: "button", onclick: () => this.#invite() }, t("people.invite")),
      ),
    );
  }

  /** Whoever closes the code may open it from the same place, and the other way round. */
  #joining() {
    const { join_code: code, join_url: url } = this.#page.course;
    const change = (method, question, label) => async () => {
      if (question && !(await confirmed(question, label))) return;
      await this.#page.attempt(async () => {
        this.#page.course = await request(method, `${this.#path}/join-code`);
      });
      this.refresh();
    };
    const button = (label, action, attributes) => element("button", { type: "button", onclick: action, ...attributes }, label);
    const open = [
      element("p", { class: "field-hint" }, t("people.codeText")),
      copyable(code, { label: t("people.copyCode"), code: true }),
      url && copyable(url, { label: t("people.copyLink") }),
      element(
        "div",
        { class: "row-actions" },
        button(t("people.renew"), change("POST", t("people.renewAsk"), t("people.renew")), { class: "quiet", data: { action: "renew" } }),
        button(t("people.closeCode"), change("DELETE", t("people.closeAsk"), t("people.closeCode")), { class: "quiet quiet-danger", data: { action: "code" } }),
      ),
    ];
    const closed = [
      element("p", { class: "field-hint" }, t("people.closedText")),
      button(t("people.openCode"), change("POST"), { class: "button", data: { action: "code" } }),
    ];
    return element("section", { class: "card" }, element("h2", { class: "card-title" }, t("people.code")), code ? open : closed);
  }

  #table() {
    return element(
      "ul",
      { class: "people" },
      this.#people.map((person) =>
        element(
          "li",
          { class: "person", data: { id: person.id } },
          element(
            "div",
            { class: "person-names" },
            element("span", { class: "person-name", dir: "auto" }, person.name),
            element("span", { class: "person-login", dir: "auto" }, person.login),
          ),
          element("span", { class: `badge badge-${person.is_disabled ? "red" : "quiet"}` }, t(person.is_disabled ? "people.disabled" : `role.${person.role}`)),
          element("span", { class: "person-facts" }, this.#facts(person)),
          element("div", { class: "row-actions" }, this.#actions(person)),
        ),
      ),
    );
  }

  #facts({ joined_at: joined, seen_at: seen, pseudonym }) {
    return [pseudonym, t("people.joined", { day: day(joined) }), seen && t("people.seen", { day: day(seen) })].filter(Boolean).join(" · ");
  }

  #actions(person) {
    if (person.id === this.#page.me.id) return [];
    const path = `${this.#path}/people/${encodeURIComponent(person.id)}`;
    const button = (name, label, action, style = "") => {
      const data = { action: `${name} ${person.id}` };
      return element("button", { class: `quiet ${style}`, type: "button", "aria-label": `${label}: ${person.name}`, onclick: action, data }, label);
    };
    const act = (action) => async () => {
      await this.#page.attempt(action);
      await this.open();
    };
    const remove = async () => {
      if (await confirmed(t("people.removeAsk", { name: person.name }), t("people.remove"))) await act(() => request("DELETE", path))();
    };
    const isStudent = person.account === "student";
    return [
      isStudent ? button("reset", t("people.reset"), () => this.#reset(person, path)) : null,
      isStudent
        ? button("disable", t(person.is_disabled ? "people.enable" : "people.disable"), act(() => request("PATCH", path, { is_disabled: !person.is_disabled })))
        : button("role", t(person.role === "teacher" ? "people.makeStudent" : "people.makeTeacher"), act(() => request("PATCH", path, { role: person.role === "teacher" ? "student" : "teacher" }))),
      button("remove", t("people.remove"), remove, "quiet-danger"),
    ].filter(Boolean);
  }

  async #reset(person, path) {
    const link = await this.#page.attempt(() => request("POST", `${path}/reset`));
    if (link) dialog(t("people.resetTitle", { name: person.name }), element("p", {}, t("people.linkText", { day: day(link.expires_at) })), copyable(link.url));
  }

  async #invite() {
    const link = await this.#page.attempt(() => request("POST", "/api/links", {}));
    if (link) dialog(t("people.inviteTitle"), element("p", {}, t("people.linkText", { day: day(link.expires_at) })), copyable(link.url));
  }
}
