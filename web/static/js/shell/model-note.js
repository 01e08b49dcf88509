// The quiet line that names the model, and the bar that tells of a lost connection.

import { fill, element, icon } from "../elements.js";
import { setWaiting } from "../focus.js";
import { t } from "../i18n.js";

const PATIENCE_MS = 1200;
/** An attempt that fails sooner would look like none. */
const LEAST_TRY_MS = 1000;

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

/**
 * Shows after a moment, so that a short break passes unseen. Attempts that the page makes by itself
 * change nothing in it, so that nobody is told of each; one that its reader asks for is told once,
 * and so is what comes of it.
 */
export class ConnectionBar {
  #root;
  #connection;
  #timer = null;
  #words = element("span", {});
  #button = element("button", { type: "button", class: "link-button retry-now" });
  /** Why there is no connection, as far as is known; null before the first attempt has failed. */
  #cause = null;
  #isTrying = false;
  #triedAt = 0;

  constructor(root, connection) {
    this.#root = root;
    this.#connection = connection;
    this.#button.addEventListener("click", () => this.#try());
    connection.addEventListener("state", () => this.#update());
    this.#update();
  }

  refresh() {
    if (!this.#root.hidden) this.#show();
  }

  #try() {
    if (this.#isTrying) return;
    this.#isTrying = true;
    this.#triedAt = performance.now();
    // Fewer words would move what is read below, and the next ones move it back.
    this.#root.style.minHeight = `${this.#root.offsetHeight}px`;
    this.#show();
    this.#connection.retryNow();
  }

  /** An attempt has failed: shown no sooner than a reader can see that there was one. */
  #failed() {
    const left = this.#triedAt + LEAST_TRY_MS - performance.now();
    setTimeout(() => {
      // Another one may be going on by now, which comes here too.
      if (this.#connection.state !== "waiting") return;
      this.#endTry();
      this.refresh();
    }, Math.max(0, left));
  }

  #endTry() {
    this.#isTrying = false;
    this.#root.style.minHeight = "";
  }

  #update() {
    if (this.#connection.isOpen) {
      clearTimeout(this.#timer);
      this.#timer = null;
      this.#cause = null;
      this.#endTry();
      this.#root.hidden = true;
      return;
    }
    this.#cause = this.#connection.cause ?? this.#cause;
    if (this.#isTrying && this.#connection.state === "waiting") this.#failed();
    this.#timer ??= setTimeout(() => this.#show(), PATIENCE_MS);
    if (!this.#root.hidden) this.#show();
  }

  #show() {
    // Before it is filled: a region that is hidden announces nothing.
    if (this.#root.hidden) {
      this.#root.hidden = false;
      fill(this.#root, icon("info"), this.#words, this.#button);
    }
    const isKnown = this.#cause !== null && !this.#isTrying;
    write(this.#words, t(isKnown ? `connection.${this.#cause}` : "connection.connecting"));
    write(this.#button, t("connection.retry"));
    this.#button.hidden = this.#cause === null;
    this.#root.setAttribute("data-trying", String(this.#isTrying));
    setWaiting(this.#button, this.#isTrying);
  }
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
