// The WebSocket: one per page, reopened with growing pauses, messages kept until it is welcome.

const FIRST_PAUSE_MS = 400;
const LONGEST_PAUSE_MS = 15_000;
const PING_MS = 20_000;
/** After so long without a word a socket is probed. (No more than that: the timers of a hidden page
 * run once a minute, so that the last answer is old at every ping of a healthy one.) */
const SILENCE_MS = 45_000;
/** A live socket answers within this; one that died, in sleep too, looks alive for minutes. */
const PROBE_MS = 3000;
/** From the first byte to the welcome; a server that says nothing for so long is none. */
const WELCOME_MS = 20_000;

/** How the server closes when it has too much to do; how long to wait stands in the reason. */
const OVERLOAD = 1013;

/**
 * Events: "welcome" (detail: the message), "message" (detail: any other message), "state"
 * (detail: "connecting", "open", "waiting" or "closed"). What is sent before the welcome is dropped:
 * whoever needs it delivered sends it again on "welcome" (see outbox.js, runs.js).
 */
export class Connection extends EventTarget {
  #socket = null;
  #failures = 0;
  #timer = null;
  #heartbeat = null;
  #probe = null;
  #lastHeard = 0;
  state = "connecting";
  /** How the last socket was closed, or null. */
  closeCode = null;
  /** Since when it is not open (ms, performance.now), null where it is or never was. */
  lostAt = null;
  /** When the pause before the next attempt ends (ms, performance.now), or null. */
  retryAt = null;
  /** Bytes of the largest message that the server takes; unlimited until it has said. */
  maxMessageBytes = Infinity;

  constructor(url) {
    super();
    this.url = url;
    window.addEventListener("online", () => this.retryNow());
    // The socket does not hear of it, and would look open until something is missed.
    window.addEventListener("offline", () => this.isOpen && this.#wake());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.#wake();
    });
    window.addEventListener("pageshow", () => this.#wake());
    // Not every page that was frozen was hidden too.
    document.addEventListener("resume", () => this.#wake());
  }

  get isOpen() {
    return this.state === "open";
  }

  /** Why there is no connection: "busy" (the server has too much to do), "offline" (this device
   * is), "lost" (anything else), or null where there is one. */
  get cause() {
    if (this.state !== "waiting") return null;
    if (this.closeCode === OVERLOAD) return "busy";
    return navigator.onLine ? "lost" : "offline";
  }

  open() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.retryAt = null;
    this.#setState("connecting");
    const socket = new WebSocket(this.url, ["lectern.v1"]);
    this.#socket = socket;
    this.#probe = setTimeout(() => this.#abandon(), WELCOME_MS);
    socket.addEventListener("open", () => {
      socket.send(JSON.stringify({ type: "hello", locale: document.documentElement.lang }));
    });
    socket.addEventListener("message", (event) => {
      if (socket === this.#socket) this.#receive(event.data);
    });
    socket.addEventListener("close", (event) => {
      if (socket === this.#socket) this.#lost(event.code, event.reason);
    });
  }

  /** Sends if the connection is open; returns whether it was. */
  send(message) {
    if (!this.isOpen) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  /** Leaves for good: the page is about to be another one. */
  close() {
    const socket = this.#socket;
    this.#socket = null;
    this.#stopTimers();
    clearTimeout(this.#timer);
    this.#setState("closed");
    socket?.close();
  }

  retryNow() {
    if (this.state === "waiting") this.open();
  }

  #receive(data) {
    this.#lastHeard = performance.now();
    clearTimeout(this.#probe);
    this.#probe = null;
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    if (message.type === "welcome") {
      this.#failures = 0;
      this.maxMessageBytes = message.limits?.max_message_bytes ?? Infinity;
      this.#setState("open");
      clearInterval(this.#heartbeat);
      this.#heartbeat = setInterval(() => this.#beat(), PING_MS);
      this.dispatchEvent(new CustomEvent("welcome", { detail: message }));
    } else if (message.type !== "pong") {
      this.dispatchEvent(new CustomEvent("message", { detail: message }));
    }
  }

  #beat() {
    if (!this.isOpen) return;
    if (performance.now() - this.#lastHeard > SILENCE_MS) this.#check();
    else this.#ping();
  }

  /** The page is seen again, perhaps after sleep: a socket may look open and be dead. */
  #wake() {
    if (this.state === "waiting" && this.closeCode !== OVERLOAD) {
      this.retryNow();
    } else if (this.isOpen) {
      this.#check();
    }
  }

  /** A socket that does not answer in time is left for a new one. */
  #check() {
    this.#ping();
    this.#probe ??= setTimeout(() => {
      this.#abandon();
      this.retryNow();
    }, PROBE_MS);
  }

  #ping() {
    this.#socket.send(JSON.stringify({ type: "ping" }));
  }

  #abandon() {
    const dead = this.#socket;
    this.#lost(1006, "");
    dead.close();
  }

  #stopTimers() {
    clearInterval(this.#heartbeat);
    clearTimeout(this.#probe);
    this.#probe = null;
  }

  #lost(code, reason) {
    this.#stopTimers();
    this.#socket = null;
    this.#failures += 1;
    const ceiling = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (this.#failures - 1));
    // Half of the pause is random, so that a class does not come back in one instant.
    const pause = Math.max(ceiling / 2, askedPauseMs(code, reason)) + (Math.random() * ceiling) / 2;
    this.closeCode = code;
    this.retryAt = performance.now() + pause;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.open(), pause);
    this.#setState("waiting");
  }

  #setState(state) {
    if (state === this.state) return;
    if (this.isOpen) this.lostAt = performance.now();
    this.state = state;
    if (this.isOpen) this.lostAt = null;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }
}

/** How long the server has asked to stay away, in ms. */
function askedPauseMs(code, reason) {
  return code === OVERLOAD ? Number(/(\d{1,9}) ms/.exec(reason)?.[1] ?? 0) : 0;
}

/** How many bytes `value` has in a message: as JSON, in UTF-8. */
export function messageBytes(value) {
  return new TextEncoder().encode(JSON.stringify(value)).length;
}

/** The page's own WebSocket address. */
export function socketUrl() {
  return `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/ws/v1`;
}
