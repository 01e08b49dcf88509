// What was asked in the course: filters, counts, records, exports. The filters are the address.

import { request } from "../api.js";
import { element, fill, icon } from "../elements.js";
import { focusOn } from "../focus.js";
import { field, input, keepingFields } from "../forms.js";
import { number, plural, t } from "../i18n.js";
import { zoneOf } from "./dates.js";
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
  /** Whether the form asks for names; null before there is one. */
  #asksNames = null;
  #form = element("div", {});
  #chips = element("div", { class: "chips", role: "group" });
  #heading = element("h2", { class: "section-title" });
  #csv = element("a", { class: "button", download: "" });
  #jsonl = element("a", { class: "button", download: "" });
  #cut = element("p", { class: "field-hint" });
  #none = element("p", { class: "empty" });
  #cards = element("ul", { class: "records" });
  #more = element("button", { class: "button", type: "button", onclick: () => this.#load(this.#next) });

  constructor(root, page) {
    this.#root = root;
    this.#page = page;
  }

  async open() {
    await this.#load(null);
  }

  /** The language has changed. */
  refresh() {
    if (this.#counts === null) return;
    keepingFields(this.#form, () => this.#renderForm());
    this.#render();
    fill(this.#cards, this.#cardsOf(this.#records));
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
    const found = await this.#page.read(() => request("GET", `${this.#path}?${query}`), () => this.#root.isConnected);
    if (found === undefined || loading !== this.#loading || !this.#root.isConnected) return;
    this.#records = before ? [...this.#records, ...found.records] : found.records;
    this.#next = found.next;
    this.#counts = found.counts;
    this.#showsNames = found.shows_names;
    this.#page.say(plural("log.matching", found.counts.matching));
    if (this.#asksNames !== this.#showsNames) this.#renderForm();
    const wasOnMore = document.activeElement === this.#more;
    this.#render();
    const added = this.#cardsOf(found.records);
    if (before) this.#cards.append(...added);
    else fill(this.#cards, added);
    if (wasOnMore && this.#more.hidden) focusOn(added[0] ?? this.#heading);
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

  /**
   * All but the form and the records, which come and go apart: what somebody writes or has opened
   * stays, and so does the focus.
   */
  #render() {
    const query = this.#query;
    const address = (format) => `${this.#path}.${format}?${query}`;
    this.#renderChips();
    this.#heading.textContent = plural("log.matching", this.#counts.matching);
    this.#csv.textContent = t("log.csv");
    this.#csv.href = address("csv");
    this.#jsonl.textContent = t("log.jsonl");
    this.#jsonl.href = address("jsonl");
    this.#cut.textContent = t("log.isCut");
    this.#cut.hidden = !this.#counts.is_cut;
    this.#none.textContent = t(query.size > 0 ? "log.noMatch" : "log.none");
    this.#none.hidden = this.#records.length > 0;
    this.#cards.hidden = this.#records.length === 0;
    this.#more.textContent = t("log.more");
    this.#more.hidden = !this.#next;
    if (this.#root.children.length > 0) return;
    const head = element("div", { class: "log-head" }, this.#heading, this.#csv, this.#jsonl);
    fill(this.#root, element("div", {}, this.#form, this.#chips), element("div", {}, head, this.#cut, this.#none, this.#cards, this.#more));
  }

  #cardsOf(records) {
    const zone = zoneOf(this.#page.course);
    return records.map((record) => recordCard(record, zone));
  }

  #renderForm() {
    this.#asksNames = this.#showsNames;
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
    fill(this.#form, node);
  }

  #renderChips() {
    const chosen = new Set((this.#query.get("kind") ?? "").split(",").filter(Boolean));
    const chip = (name, label, count, isOn, kinds) => {
      const node = element("button", { class: "chip", type: "button", "aria-pressed": String(isOn), data: { kind: name } }, label, " ", element("span", { class: "chip-count" }, number(count)));
      node.addEventListener("click", () => this.#set({ kind: kinds.join(",") }));
      return node;
    };
    const chips = [
      chip("all", t("log.all"), this.#counts.total, chosen.size === 0, []),
      ...KINDS.filter((kind) => this.#counts.kinds[kind] > 0 || chosen.has(kind)).map((kind) => {
        const rest = chosen.has(kind) ? [...chosen].filter((other) => other !== kind) : [...chosen, kind];
        return chip(kind, t(`kinds.${kind}`), this.#counts.kinds[kind] ?? 0, chosen.has(kind), rest);
      }),
    ];
    const focused = this.#chips.contains(document.activeElement) ? document.activeElement.dataset.kind : null;
    this.#chips.setAttribute("aria-label", t("log.kinds"));
    fill(this.#chips, chips);
    // A kind that no record is of any more has no chip.
    if (focused !== null) (chips.find(({ dataset }) => dataset.kind === focused) ?? chips[0]).focus();
  }
}
