// What happens to the reader's conversations elsewhere: in another tab, or on another device.

/** Messages of another version of this page are not for this one. */
const VERSION = 1;

/**
 * Events, each with the server's message as detail: "opened" {run, conversation, message, title},
 * "changed" {conversation, title}, "deleted" {conversation}. Tabs of one browser tell each other of
 * runs too, which is faster than the way by the server; so "opened" may come twice.
 */
export class Peers extends EventTarget {
  #channel = "BroadcastChannel" in window ? new BroadcastChannel("lectern") : null;

  constructor(connection) {
    super();
    connection.addEventListener("message", ({ detail }) => {
      if (detail.type === "opened" || detail.type === "changed" || detail.type === "deleted") this.#tell(detail);
    });
    this.#channel?.addEventListener("message", ({ data }) => {
      if (data?.version === VERSION && data.type === "opened") this.#tell(data);
    });
  }

  /** Tells the other tabs of a run that has begun in this one. */
  announce({ run, conversation, message, title }) {
    this.#channel?.postMessage({ version: VERSION, type: "opened", run, conversation, message, title });
  }

  #tell(detail) {
    this.dispatchEvent(new CustomEvent(detail.type, { detail }));
  }
}
