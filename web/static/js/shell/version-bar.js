// Tells quietly that the server has a newer page than this one.

import { element, fill, icon } from "../elements.js";
import { t } from "../i18n.js";

export class VersionBar {
  #root;

  constructor(root, connection) {
    this.#root = root;
    connection.addEventListener("welcome", ({ detail }) => {
      const mine = document.documentElement.dataset.version;
      if (detail.static !== undefined && mine && detail.static !== mine) this.#show();
    });
  }

  refresh() {
    if (!this.#root.hidden) this.#show();
  }

  #show() {
    const button = element("button", { type: "button", class: "link-button" }, t("version.reload"));
    // Drafts, and what is on its way, outlive it.
    button.addEventListener("click", () => location.reload());
    this.#root.hidden = false;
    fill(this.#root, icon("info"), element("span", {}, t("version.new")), button);
  }
}
