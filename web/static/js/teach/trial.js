// "Try a question": what would be found, with scores, and why.

import { request } from "../api.js";
import { element, fill, icon } from "../elements.js";
import { field, form, input, keepingFields } from "../forms.js";
import { number, percent, t } from "../i18n.js";
import { locatorText } from "../sources/places.js";
import { cleaned } from "../answer/seams.js";

export class Trial {
  #root;
  #page;
  #found = null;
  #asked = "";
  #results = element("div", { class: "trial", "aria-live": "polite" });

  constructor(root, page) {
    this.#root = root;
    this.#page = page;
  }

  async open() {
    this.refresh();
    this.#root.querySelector("input").focus();
  }

  refresh() {
    keepingFields(this.#root, () => this.#build());
    this.#render();
  }

  #build() {
    const question = input("question", { value: this.#asked, required: true, maxlength: 10000 });
    const previous = input("previous");
    const send = async () => {
      this.#asked = question.value.trim();
      if (!this.#asked) return;
      const body = { question: this.#asked };
      if (previous.value.trim()) body.previous = previous.value.trim();
      this.#found = await request("POST", `/api/courses/${encodeURIComponent(this.#page.course.id)}/search`, body);
      this.#render();
    };
    fill(
      this.#root,
      element("p", { class: "field-hint" }, t("try.text")),
      form(
        { label: t("try.search"), send, attributes: { class: "form card" } },
        field(t("try.question"), question),
        element("details", { class: "more" }, element("summary", {}, t("try.followUp")), field(t("try.previous"), previous, t("try.previousHint"))),
      ),
      this.#results,
    );
  }

  #render() {
    const found = this.#found;
    if (found === null) return;
    const { parts } = found;
    if (parts.length === 0) fill(this.#results, verdict(found, found.is_found ? "try.found" : "try.notFound"), reasons(found));
    else fill(this.#results, verdictOnParts(parts), parts.map(partOfQuestion));
  }
}

function reasons(found) {
  return [
    words(t("try.words"), found.units.filter((unit) => unit.is_asked)),
    found.passages.length > 0 ? element("ol", { class: "hits" }, found.passages.map((hit) => row(hit, found))) : null,
  ];
}

/** What a question that is not found as a whole comes to: a student gets an answer to the found parts. */
function verdictOnParts(parts) {
  const isWhole = parts.every(({ found }) => found?.is_found);
  return judgement(isWhole, t(isWhole ? "try.foundInParts" : "try.foundSomeParts"));
}

function partOfQuestion({ question, found }) {
  return element(
    "section",
    { class: "trial-part" },
    element("h2", { class: "card-title", dir: "auto" }, question),
    found === null ? judgement(false, t("try.partNotSearched")) : [verdict(found, found.is_found ? "try.partFound" : "try.partNotFound"), reasons(found)],
  );
}

function verdict({ is_found: isFound, score, threshold, is_follow_up: isFollowUp }, key) {
  return judgement(isFound, t(key), t("try.scored", { score: number(score, 2), threshold: number(threshold, 2) }), isFollowUp ? t("try.isFollowUp") : "");
}

function judgement(isFound, said, ...more) {
  return element(
    "p",
    { class: `verdict verdict-${isFound ? "done" : "amber"}` },
    icon(isFound ? "check" : "alert"),
    element("span", {}, element("strong", {}, said), ...more.map((text) => ` ${text}`)),
  );
}

/** What a question asks for, or a passage lacks; `missing`: shown as not there. */
function words(label, units, { missing = false, titles = [] } = {}) {
  if (units.length === 0) return null;
  const isMissing = (unit) => missing || unit.num_passages === 0;
  return element(
    "p",
    { class: "trial-words" },
    label,
    units.map((unit, index) =>
      element("span", { class: `word${isMissing(unit) ? " word-missing" : ""}`, title: titles[index] ?? t("try.weight", { weight: number(unit.weight, 2), count: number(unit.num_passages) }) }, unit.label),
    ),
  );
}

/** The place that the model would give a passage among those that it was asked about. */
function placeByModel(hit, passages) {
  const judged = passages.filter(({ likelihood }) => likelihood !== null);
  const place = judged.filter(({ likelihood }) => likelihood > hit.likelihood).length + 1;
  return t("try.likelihood", { place: number(place), count: number(judged.length) });
}

function row(hit, { units, passages }) {
  const held = hit.matches.filter(({ unit }) => units[unit].is_asked);
  const matched = held.map(({ unit }) => units[unit]);
  const columns = held.map(({ columns: names }) => names.map((name) => t(`column.${name}`)).join(", "));
  const missing = hit.missing.map((index) => units[index]);
  const bar = element("span", { class: "hit-bar", "aria-hidden": "true" }, element("span", {}));
  bar.firstChild.style.width = `${Math.round(100 * Math.min(1, hit.coverage))}%`;
  return element(
    "li",
    { class: `hit${hit.is_given ? " is-given" : ""}`, data: { id: hit.id } },
    element(
      "div",
      { class: "hit-head" },
      element("span", { class: "hit-title", dir: "auto" }, hit.title),
      hit.is_hidden ? element("span", { class: "badge badge-amber" }, t("visible.hidden")) : null,
      hit.is_given ? element("span", { class: "badge badge-done" }, t("try.given")) : null,
      hit.likelihood === null ? null : element("span", { class: "hit-judged", title: t("try.likelihoodHint") }, placeByModel(hit, passages)),
      element("span", { class: "hit-score" }, t("try.covered", { share: percent(hit.coverage) })),
    ),
    bar,
    element("p", { class: "passage-head", dir: "auto" }, locatorText(hit)),
    element("p", { class: "passage-text", dir: "auto" }, cleaned(hit.text)),
    words(t("try.matched"), matched, { titles: columns }),
    words(t("try.missing"), missing, { missing: true }),
  );
}
