// What was asked in the course: filters, counts, records, exports. The filters are the address.

import { request } from "../api.js";
import { element, fill, icon } from "../elements.js";
import { field, input } from "../forms.js";
import { number, plural, t } from "../i18n.js";
import { recordCard } from "./record-card.js";

const KINDS = ["down", "up", "not_found", "no_support", "cut", "cancelled", "interrupted", "error"];
const FILTERS = ["kind", "from", "to", "text", "person", "pseudonym", "material"];

export class Log {
  #root;
  #page;
  #records = [];
  #next = null;
  #counts = null;
  #showsNames = false;
  #loading = 0;
  #filters = element("div", {});
  #list = element("div", {});

  constructor(root, page) {
    this.#root = root;
    this.#page = page;
    fill(root, this.#filters, this.#list);
  }

  async open() {
    await this.#load(null);
  }

  refresh() {
    this.#render();
  }

  get #path() {
    return `/api/courses/${encodeURIComponent(this.#page.course.id)}/records`;
  }

  /** The filters of the address, and nothing else of it. */
  get #query() {
    const given = new URLSearchParams(location.search);
    return new URLSearchParams(FILTERS.filter((name) => given.get(name)).map((name) => [name, given.get(name)]));
  }

  async #load(before) {
    const loading = (this.#loading += 1);
    const query = this.#query;
    if (before) query.set("before", before);
    const found = await this.#page.attempt(() => request("GET", `${this.#path}?${query}`));
    if (found === undefined || loading !== this.#loading) return;
    this.#records = before ? [...this.#records, ...found.records] : found.records;
    this.#next = found.next;
    this.#counts = found.counts;
    this.#showsNames = found.shows_names;
    this.#page.say(plural("log.matching", found.counts.matching));
    this.#render();
  }

  #set(changes) {
    const query = this.#query;
    for (const [name, value] of Object.entries(changes)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    history.replaceState({}, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
    return this.open();
  }

  #render() {
    if (this.#counts === null) return;
    fill(this.#filters, this.#form(), this.#kinds());
    const query = this.#query;
    const address = (format) => `${this.#path}.${format}?${query}`;
    const more = element("button", { class: "button", type: "button", onclick: () => this.#load(this.#next) }, t("log.more"));
    fill(
      this.#list,
      element(
        "div",
        { class: "log-head" },
        element("h2", { class: "section-title" }, plural("log.matching", this.#counts.matching)),
        element("a", { class: "button", href: address("csv"), download: "" }, t("log.csv")),
        element("a", { class: "button", href: address("jsonl"), download: "" }, t("log.jsonl")),
      ),
      this.#counts.is_cut ? element("p", { class: "field-hint" }, t("log.isCut")) : null,
      this.#records.length === 0
        ? element("p", { class: "empty" }, t(this.#query.size > 0 ? "log.noMatch" : "log.none"))
        : element("ul", { class: "records" }, this.#records.map(recordCard)),
      this.#next ? more : null,
    );
  }

  #form() {
    const query = this.#query;
    const text = input("text", { type: "search", value: query.get("text") ?? "" });
    const from = input("from", { type: "date", value: query.get("from") ?? "" });
    const to = input("to", { type: "date", value: query.get("to") ?? "" });
    const whoName = this.#showsNames ? "person" : "pseudonym";
    const who = input(whoName, { type: "search", value: query.get(whoName) ?? "" });
    const node = element(
      "form",
      { class: "log-filters", role: "search" },
      field(t("log.text"), text),
      field(t(this.#showsNames ? "log.person" : "log.pseudonym"), who),
      field(t("log.from"), from),
      field(t("log.to"), to),
      element("button", { class: "button", type: "submit" }, icon("search"), t("log.search")),
    );
    const send = () => this.#set({ text: text.value.trim(), [whoName]: who.value.trim(), from: from.value, to: to.value });
    node.addEventListener("submit", (event) => {
      event.preventDefault();
      send();
    });
    for (const control of [from, to]) control.addEventListener("change", send);
    return node;
  }

  #kinds() {
    const chosen = new Set((this.#query.get("kind") ?? "").split(",").filter(Boolean));
    const chip = (label, count, isOn, kinds) => {
      const node = element("button", { class: "chip", type: "button", "aria-pressed": String(isOn) }, label, " ", element("span", { class: "chip-count" }, number(count)));
      node.addEventListener("click", () => this.#set({ kind: kinds.join(",") }));
      return node;
    };
    return element(
      "div",
      { class: "chips", role: "group", "aria-label": t("log.kinds") },
      chip(t("log.all"), this.#counts.total, chosen.size === 0, []),
      KINDS.filter((kind) => this.#counts.kinds[kind] > 0 || chosen.has(kind)).map((kind) => {
        const rest = chosen.has(kind) ? [...chosen].filter((other) => other !== kind) : [...chosen, kind];
        return chip(t(`kinds.${kind}`), this.#counts.kinds[kind] ?? 0, chosen.has(kind), rest);
      }),
    );
  }
}
