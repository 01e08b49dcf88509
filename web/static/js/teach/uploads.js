// Files on their way in: sent two at a time, then watched until the server has read them.

import { ApiError, request } from "../api.js";
import { newId } from "../chat/outbox.js";

const IN_FLIGHT = 2;
const POLL_MS = 500;
/** How often the progress of an upload is asked for in vain, each time later, up to the longest: for
 * a minute and a half in all. */
const MOST_FAILED = 14;
const LONGEST_MS = 8000;
const MOVING = ["queued", "sending", "waiting", "parsing"];

/**
 * Event "change": something in `items` has moved. An item is {key, name, state, page, pages, words};
 * `state` is "queued", "sending", "unfollowed" where the server may read on and cannot be asked, or
 * one of the server's: "waiting", "parsing", "ready", "failed", "duplicate". Event "stored": the list of materials has changed.
 */
export class Uploads extends EventTarget {
  #path;
  #queue = [];
  #sending = 0;
  items = [];

  constructor(course) {
    super();
    this.#path = `/api/courses/${encodeURIComponent(course)}/materials`;
  }

  get isBusy() {
    return this.items.some(({ state }) => MOVING.includes(state));
  }

  add(files) {
    this.items = this.items.filter(({ state }) => state !== "ready");
    for (const file of files) {
      const item = { key: newId(), name: file.name, state: "queued", page: null, pages: null, error: null };
      this.items.push(item);
      this.#queue.push({ item, file });
    }
    this.#next();
    this.#tell("change");
  }

  /** Forgets what has ended. */
  clear() {
    this.items = this.items.filter(({ state }) => MOVING.includes(state));
    this.#tell("change");
  }

  #next() {
    while (this.#sending < IN_FLIGHT && this.#queue.length > 0) {
      const { item, file } = this.#queue.shift();
      this.#sending += 1;
      this.#send(item, file).finally(() => {
        this.#sending -= 1;
        this.#next();
      });
    }
  }

  async #send(item, file) {
    Object.assign(item, { state: "sending" });
    this.#tell("change");
    const form = new FormData();
    form.append("file", file, file.name);
    try {
      const job = await request("POST", this.#path, form, { Prefer: "respond-async" });
      // A single file that needs no reading is answered with its material.
      if (job.import === undefined) this.#settle(item, job);
      else await this.#watch(item, job);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      Object.assign(item, { state: "failed", error });
      this.#tell("change");
    }
    this.#tell("stored");
  }

  #settle(item, { id, duplicate }) {
    Object.assign(item, { state: duplicate ? "duplicate" : "ready", material: id });
    this.#tell("change");
  }

  async #watch(item, first) {
    let job = first;
    let rows = [item];
    let stored = 0;
    for (;;) {
      rows = this.#fold(rows, job.files);
      if (job.done > stored) this.#tell("stored");
      stored = job.done;
      this.#tell("change");
      if (job.done >= job.total) return;
      await pause(POLL_MS);
      try {
        job = await progress(job.import);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        for (const row of rows) if (MOVING.includes(row.state)) row.state = "unfollowed";
        this.#tell("change");
        return;
      }
    }
  }

  /** The rows of an upload as its files are now: a zip becomes as many as it holds. */
  #fold(rows, files) {
    const made = files.map((file, index) => Object.assign(rows[index] ?? { key: newId() }, file, { error: file.error && new ApiError(422, file.error) }));
    const at = this.items.indexOf(rows[0]);
    if (at >= 0) this.items.splice(at, rows.length, ...made);
    return made;
  }

  #tell(type) {
    this.dispatchEvent(new Event(type));
  }
}

/** How an import is now; asked again while the server cannot say. Throws ApiError. */
async function progress(id) {
  for (let failed = 0; ; failed += 1) {
    try {
      return await request("GET", `/api/imports/${encodeURIComponent(id)}`);
    } catch (error) {
      const mayPass = error.status === 0 || error.status === 429 || error.status >= 500;
      if (!mayPass || failed >= MOST_FAILED) throw error;
      await pause(Math.min(POLL_MS * 2 ** failed, LONGEST_MS));
    }
  }
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
