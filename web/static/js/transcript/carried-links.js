// From a summary back to the conversation that it is of, and from an answer on to those that begin
// with a summary up to it.

import { element, fill, icon } from "../elements.js";
import { t } from "../i18n.js";
import { opensElsewhere } from "../shell/conversation-list.js";

/** `root` is hidden where there is no link. `open({conversation, message})` is called on a click. */
export class CarriedLinks {
  #open;
  #links = null;
  root = element("div", { class: "carried-links", hidden: true });

  constructor(open) {
    this.#open = open;
  }

  /** Shows {before: a link or null, after: links}, each {conversation, message, title}. */
  update(links) {
    if (JSON.stringify(links) === JSON.stringify(this.#links)) return;
    this.#links = structuredClone(links);
    this.refresh();
  }

  /** The same in the language of now. */
  refresh() {
    if (this.#links === null) return;
    const { before, after } = this.#links;
    this.root.hidden = before === null && after.length === 0;
    fill(this.root, before && this.#line(before, "carried.from"), after.map((link) => this.#line(link, "carried.to")));
  }

  #line(link, words) {
    if (link.conversation === null) return element("p", { class: "carried-link" }, icon("summary"), t("carried.gone"));
    const title = link.title || t("sidebar.untitled");
    const to = element("a", { href: `/c/${encodeURIComponent(link.conversation)}`, title, dir: "auto" }, title);
    to.addEventListener("click", (event) => {
      if (opensElsewhere(event)) return;
      event.preventDefault();
      // Onwards is read from its end; back, where it was left.
      this.#open({ conversation: link.conversation, message: words === "carried.from" ? link.message : null });
    });
    return element("p", { class: "carried-link" }, icon("summary"), element("span", {}, t(words)), to);
  }
}
