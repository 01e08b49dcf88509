// The quiet line that names the model, and the bar that tells of a lost connection.

import { fill, element, icon } from "../elements.js";
import { t } from "../i18n.js";

const PATIENCE_MS = 1200;

export class ModelNote {
  #root;
  #model = null;

  constructor(root, connection) {
    this.#root = root;
    connection.addEventListener("welcome", ({ detail }) => {
      this.#model = detail.model ?? null;
      this.refresh();
    });
    this.refresh();
  }

  refresh() {
    const model = this.#model;
    if (model === null) {
      fill(this.#root, t("model.unknown"));
      return;
    }
    this.#root.classList.toggle("is-fallback", Boolean(model.is_fallback));
    fill(
      this.#root,
      element("span", { class: "model-name" }, model.name),
      " · ",
      t(model.is_fallback ? "model.fallback" : "model.check"),
    );
  }
}

/** Shows after a moment, so that a short break passes unseen. */
export class ConnectionBar {
  #root;
  #connection;
  #timer = null;

  constructor(root, connection) {
    this.#root = root;
    this.#connection = connection;
    connection.addEventListener("state", () => this.#update());
    this.#update();
  }

  refresh() {
    if (!this.#root.hidden) this.#show();
  }

  #update() {
    if (this.#connection.isOpen) {
      clearTimeout(this.#timer);
      this.#timer = null;
      this.#root.hidden = true;
      return;
    }
    this.#timer ??= setTimeout(() => this.#show(), PATIENCE_MS);
    if (!this.#root.hidden) this.#show();
  }

  #show() {
    const button = element("button", { type: "button", class: "link-button" }, t("connection.retry"));
    button.addEventListener("click", () => this.#connection.retryNow());
    // Before it is filled: a region that is hidden announces nothing.
    this.#root.hidden = false;
    const waits = this.#connection.state === "waiting";
    fill(this.#root, icon("info"), element("span", {}, t(waits ? `connection.${this.#connection.cause}` : "connection.connecting")), waits ? button : null);
  }
}
