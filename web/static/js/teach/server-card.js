// How the server is doing: its model, what it has to do, how full it is. Read again while it is
// looked at.

import { ApiError, request } from "../api.js";
import { element, fill } from "../elements.js";
import { duration, number, percent, t } from "../i18n.js";
import { sizeText } from "./sizes.js";

const EVERY_MS = 5000;
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

export class ServerCard {
  #list = element("dl", { class: "server-facts" });
  #title = element("h2", { class: "card-title" });
  #state = null;
  #timer = null;
  root = element("section", { class: "card server-card", hidden: true }, this.#title, this.#list);

  async open() {
    try {
      this.#state = await request("GET", "/api/server");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      // What was read last stays; the next time may work.
    }
    this.refresh();
    this.#timer = setTimeout(() => this.#next(), EVERY_MS);
  }

  close() {
    clearTimeout(this.#timer);
  }

  /** The language has changed. */
  refresh() {
    this.root.hidden = this.#state === null;
    if (this.#state === null) return;
    this.#title.textContent = t("server.title");
    fill(this.#list, rows(this.#state).map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  }

  #next() {
    if (!this.root.isConnected) return;
    if (document.hidden) this.#timer = setTimeout(() => this.#next(), EVERY_MS);
    else this.open();
  }
}

function rows({ model, answering, waiting, connections, tokens_per_s: speed, kv_used: used, data, uptime_s: uptime, version }) {
  return [
    [t("server.model"), model === null ? t("server.loading") : t("server.modelValue", { name: model.name, window: number(model.max_model_len) })],
    [t("server.answering"), t("server.answeringValue", { answering: number(answering), waiting: number(waiting) })],
    [t("server.speed"), speed === null ? "–" : t("server.speedValue", { rate: number(speed, 1) })],
    [t("server.cache"), percent(used)],
    [t("server.connections"), number(connections)],
    [t("server.data"), t("server.dataValue", { used: sizeText(data.used_bytes), free: sizeText(data.free_bytes) })],
    [t("server.uptime"), span(uptime * 1000)],
    [t("server.version"), version],
  ];
}

function span(ms) {
  if (ms < MINUTE_MS) return duration(ms);
  const hours = Math.floor(ms / HOUR_MS);
  return t("server.hours", { hours: number(hours), minutes: number(Math.floor((ms % HOUR_MS) / MINUTE_MS)) });
}
