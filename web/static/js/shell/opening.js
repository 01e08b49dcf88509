// Which conversation of which course the page is on, its address, and the way to another one.

import { api, loginAddress } from "../api.js";
import { t } from "../i18n.js";
import { claimStorage, keep, kept, ownsStorage } from "../preferences.js";

const COURSE = "lectern.course";
// What this tab shows. A reload that has begun already drops what is pushed to the history then, so
// the address alone does not always know.
const OPEN = "lectern.open";
/** How the server closes a socket whose user may no longer use it. */
const POLICY_VIOLATION = 1008;

/**
 * Events: "courses" (who is here, or their courses, have been read), "new" (a conversation that is
 * not stored is shown, to be written in), "stranger" (what the browser had kept was somebody else's,
 * and is gone), "missing" (detail: a text).
 */
export class Opening extends EventTarget {
  #chat;
  #connection;
  #problem;
  courses = [];
  /** The person, as `GET /api/me` tells; null until that and their courses are known. */
  me = null;
  /** Its reader has gone elsewhere before anything could be shown: the address says where. */
  #hasMoved = false;
  /** The address names what is not shown yet: on its way, or it could not be had. */
  #isBehind = false;

  /** `problem`: the ProblemBar. The connection is opened when the first conversation is shown. */
  constructor(chat, connection, problem) {
    super();
    this.#chat = chat;
    this.#connection = connection;
    this.#problem = problem;
    chat.addEventListener("show", () => this.#shown());
    chat.addEventListener("accepted", ({ detail }) => {
      if (!detail.isNew) return;
      keep("sessionStorage", OPEN, detail.conversation);
      goTo(pathOf(detail.conversation));
    });
    // It has no address of its own yet, and that of the one before would bring that back at a reload.
    chat.addEventListener("carry", () => goTo("/"));
    connection.addEventListener("state", () => {
      if (connection.state === "waiting" && connection.closeCode === POLICY_VIOLATION) this.#checkMembership();
    });
    window.addEventListener("popstate", () => {
      const id = addressed();
      if (id === null) this.startNew({ push: false });
      else if (id === chat.conversation.id) this.#returned();
      else this.open(id, { push: false });
    });
    window.addEventListener("pageshow", ({ persisted }) => {
      // The browser shows the page as it was left, and its person may have logged out since.
      if (!persisted || this.me === null || ownsStorage(this.me.id)) return;
      document.body.hidden = true;
      location.reload();
    });
  }

  /** The course that is shown, or null. */
  get course() {
    return this.courses.find(({ id }) => id === this.#chat.conversation.course) ?? null;
  }

  /** The id of the course that is shown, else of the one to begin in; null: of none. */
  get courseId() {
    return this.#chat.conversation.course ?? this.#existing(kept("localStorage", COURSE));
  }

  /** Whether it is known that this person is in no course. */
  get isCourseless() {
    return this.me !== null && this.courses.length === 0;
  }

  /** An empty conversation: in the course that the address names, else in the one of now. */
  startNew({ push = true } = {}) {
    if (this.me === null) {
      this.#hasMoved = true;
      if (push && addressed() !== null) goTo("/");
      return;
    }
    const asked = new URLSearchParams(location.search).get("course");
    const named = this.courses.find(({ id, slug }) => asked !== null && (asked === id || asked === slug));
    this.#startIn(named?.id ?? this.#chat.conversation.course ?? kept("localStorage", COURSE), push);
    this.dispatchEvent(new Event("new"));
  }

  /** An empty conversation in another course. */
  changeCourse(course) {
    this.#startIn(course, true);
  }

  /**
   * A stored conversation: a promise of whether it is shown now. What stops it is told, unless its
   * reader has gone on to another one meanwhile.
   */
  async open(id, { push = true } = {}) {
    if (this.me === null) {
      this.#hasMoved = true;
      if (push) goTo(pathOf(id));
      return false;
    }
    this.#isBehind = !push;
    let isWanted;
    try {
      isWanted = await this.#chat.open(id);
    } catch (error) {
      if (error.status === 404) this.gone(t("conversation.missing"));
      else this.#problem.show(t("conversation.unreachable"), () => this.open(id, { push }));
      return false;
    }
    if (isWanted && push) goTo(pathOf(id));
    return isWanted;
  }

  /** A conversation that the server does not know yet: it has no address of its own. */
  openUnsent(key) {
    goTo("/");
    this.#chat.openUnsent(key);
    this.dispatchEvent(new Event("new"));
  }

  /** The conversation that was shown is no more, as `text` says. */
  gone(text) {
    history.replaceState({}, "", "/");
    this.startNew({ push: false });
    this.dispatchEvent(new CustomEvent("missing", { detail: text }));
    this.#problem.show(text);
  }

  /** The first thing that is shown: what the address names, else what this tab had open. */
  async start() {
    try {
      if (!(await this.#readCourses())) return;
    } catch {
      this.#problem.show(t("courses.unreachable"), () => this.start());
      return;
    }
    const conversation = this.#first();
    if (conversation) {
      await this.open(conversation, { push: false });
      const { id } = this.#chat.conversation;
      if (id) history.replaceState({}, "", pathOf(id));
    } else this.startNew({ push: false });
    if (location.search) history.replaceState({}, "", location.pathname);
    this.dispatchEvent(new Event("courses"));
    // After the conversation is known, so that the welcome finds what it should follow.
    this.#connection.open();
  }

  #startIn(course, push) {
    if (push) goTo("/");
    this.#chat.startNew(this.#existing(course));
  }

  /** The id `course`, or where this person is not in that one, of their first; null: of none. */
  #existing(course) {
    const isKnown = this.courses.some(({ id }) => id === course);
    return isKnown ? course : (this.courses[0]?.id ?? null);
  }

  /** The id of the conversation to begin with, or null. */
  #first() {
    if (this.#hasMoved) return addressed();
    return document.body.dataset.conversation || (isReload() ? kept("sessionStorage", OPEN) : null);
  }

  /** Back at the address of what is shown; or the panel of the sources has come or gone there. */
  #returned() {
    if (!this.#isBehind) return;
    this.#isBehind = false;
    this.#chat.stay();
    this.#problem.hide();
  }

  /** Reads who this is and their courses; whether they are known at all. */
  async #readCourses() {
    try {
      [{ me: this.me }, this.courses] = await Promise.all([api.me(), api.courses()]);
    } catch (error) {
      if (error.status !== 401) throw error;
      location.assign(loginAddress());
      return false;
    }
    if (claimStorage(this.me.id)) this.dispatchEvent(new Event("stranger"));
    return true;
  }

  /** The server has closed the connection for cause: the account or a place in a course has ended. */
  async #checkMembership() {
    const { course } = this.#chat.conversation;
    try {
      if (!(await this.#readCourses())) return;
    } catch {
      return;
    }
    if (course === null || this.courses.some(({ id }) => id === course)) return;
    keep("localStorage", COURSE, null);
    history.replaceState({}, "", "/");
    this.#chat.startNew(this.courses[0]?.id ?? null);
    this.dispatchEvent(new Event("courses"));
    this.#problem.show(t("course.left"));
  }

  #shown() {
    this.#isBehind = false;
    this.#problem.hide();
    const { id, course } = this.#chat.conversation;
    keep("sessionStorage", OPEN, id);
    if (course) keep("localStorage", COURSE, course);
  }
}

/** A new entry of the history; it takes the place of an open panel's. */
function goTo(path) {
  if (history.state?.panel) history.replaceState({}, "", path);
  else history.pushState({}, "", path);
}

/** The id of the conversation that the address names, or null. */
function addressed() {
  const id = /^\/c\/([^/]+)$/.exec(location.pathname)?.[1];
  return id === undefined ? null : decodeURIComponent(id);
}

function pathOf(conversation) {
  return `/c/${encodeURIComponent(conversation)}`;
}

function isReload() {
  return performance.getEntriesByType("navigation")[0]?.type === "reload";
}
