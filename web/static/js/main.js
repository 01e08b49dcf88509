// Puts the page together.

import { showAccount } from "./shell/account.js";
import { api, loginAddress } from "./api.js";
import { Chat } from "./chat/chat.js";
import { Composer } from "./shell/composer.js";
import { Connection, socketUrl } from "./chat/connection.js";
import { element, fill, icon } from "./elements.js";
import { language, onLanguageChange, setLanguage, startLanguage, t } from "./i18n.js";
import { ConnectionBar, ModelNote } from "./shell/model-note.js";
import { Outbox } from "./chat/outbox.js";
import { keep, kept } from "./preferences.js";
import { Runs } from "./chat/runs.js";
import { Scrolling } from "./transcript/scrolling.js";
import { Sidebar, courseTitle } from "./shell/sidebar.js";
import { SourcePanel } from "./sources/source-panel.js";
import { Status } from "./shell/status.js";
import { themeButton } from "./shell/theme-button.js";
import { Transcript } from "./transcript/transcript.js";
import { showWelcome } from "./shell/welcome.js";

const COURSE = "lectern.course";
// What this tab shows. A reload that has begun already drops what is pushed to the history then, so
// the address alone does not always know.
const OPEN = "lectern.open";
/** How the server closes a socket whose user may no longer use it. */
const POLICY_VIOLATION = 1008;
const find = (selector) => document.querySelector(selector);

await startLanguage();

const connection = new Connection(socketUrl());
const runs = new Runs(connection);
const chat = new Chat(connection, new Outbox(connection), runs);
const composer = new Composer(find("#composer"), find("#composer-note"), connection);
const scrolling = new Scrolling(find("#scroll"), find("#newest"));
const panel = new SourcePanel(find("#source-panel"));
const status = new Status(find("#status"));
const modelNote = new ModelNote(find("#model-note"));
const connectionBar = new ConnectionBar(find("#connection"), connection);
const sidebar = new Sidebar({ root: find("#sidebar"), backdrop: find("#backdrop"), opener: find("#menu") });
const transcript = new Transcript(find("#messages"), scrolling, {
  continueAnswer: (answer) => chat.continueAnswer(answer),
  retry: (answer) => chat.retry(answer),
  newConversation: () => startNew(),
  openSource: (passage) => panel.open(passage),
  judge: (answer, value, note) => chat.judge(answer, value, note),
});

let courses = [];
let me = null;

function pathOf(conversation) {
  return `/c/${encodeURIComponent(conversation)}`;
}

function isReload() {
  return performance.getEntriesByType("navigation")[0]?.type === "reload";
}

function course() {
  return courses.find(({ id }) => id === chat.conversation.course) ?? null;
}

function showFrame() {
  const isEmpty = chat.conversation.messages.length === 0;
  document.body.classList.toggle("is-empty", isEmpty);
  find("#welcome").hidden = !isEmpty;
  if (isEmpty) showWelcome(find("#welcome"), course(), (text) => chat.ask(text));
  const shown = course();
  find("#course-title").textContent = shown ? courseTitle(shown) : "";
  document.title = shown ? `${courseTitle(shown)} · Lectern` : "Lectern";
  showAccount(find("#account"), me, shown, leave);
  find(".dock").hidden = isEmpty && shown === null;
}

async function leave() {
  // Before the session ends: the server closes its sockets, which this page would take for an
  // account that has ended, and it would go to the login a second time.
  connection.close();
  await api.logOut();
  location.assign("/login");
}

function startNew({ push = true } = {}) {
  const asked = new URLSearchParams(location.search).get("course");
  const named = courses.find(({ id, slug }) => asked !== null && (asked === id || asked === slug));
  const id = named?.id ?? chat.conversation.course ?? kept("localStorage", COURSE) ?? courses[0]?.id ?? null;
  if (push) history.pushState({}, "", "/");
  chat.startNew(courses.some((known) => known.id === id) ? id : (courses[0]?.id ?? null));
  composer.focus();
}

async function open(id, { push = true } = {}) {
  try {
    await chat.open(id);
    if (push) history.pushState({}, "", pathOf(id));
  } catch (error) {
    if (error.status === 404) {
      history.replaceState({}, "", "/");
      startNew({ push: false });
      status.say(t("conversation.missing"));
      showProblem(t("conversation.missing"));
    } else {
      showProblem(t("conversation.unreachable"), () => open(id, { push }));
    }
  }
}

function showProblem(text, retry = null) {
  const button = retry && element("button", { type: "button", class: "link-button" }, t("action.retry"));
  const bar = find("#problem");
  button?.addEventListener("click", () => {
    bar.hidden = true;
    retry();
  });
  fill(bar, icon("alert"), element("span", {}, text), button);
  bar.hidden = false;
}

chat.addEventListener("show", () => {
  find("#problem").hidden = true;
  keep("sessionStorage", OPEN, chat.conversation.id);
  transcript.show(chat.conversation.messages);
  composer.useDraft(chat.conversation.id);
  sidebar.current = chat.conversation.id;
  status.watch(chat.conversation.runningAnswer);
  if (chat.conversation.course) {
    sidebar.showCourses(courses, chat.conversation.course);
    keep("localStorage", COURSE, chat.conversation.course);
  }
  showFrame();
});
chat.addEventListener("append", (event) => {
  transcript.append(...event.detail);
  showFrame();
});
chat.addEventListener("running", () => {
  const running = chat.conversation.runningAnswer;
  composer.isRunning = running !== null;
  composer.isStopping = running?.isStopping ?? false;
  if (running !== null) status.watch(running);
});
chat.addEventListener("accepted", ({ detail }) => {
  if (detail.isNew) {
    keep("sessionStorage", OPEN, detail.conversation);
    history.pushState({}, "", pathOf(detail.conversation));
    const written = composer.text;
    composer.text = "";
    composer.useDraft(detail.conversation);
    composer.text = written;
  }
  sidebar.current = detail.conversation;
  sidebar.reload(chat.conversation.course);
});
chat.addEventListener("ended", () => sidebar.reload(chat.conversation.course));
chat.addEventListener("returned", (event) => {
  if (composer.text === "") composer.text = event.detail;
});

composer.addEventListener("ask", (event) => chat.ask(event.detail));
composer.addEventListener("stop", () => chat.stop());

sidebar.addEventListener("new", () => startNew());
sidebar.addEventListener("open", (event) => open(event.detail));
sidebar.addEventListener("course", (event) => {
  history.pushState({}, "", "/");
  chat.startNew(event.detail);
  sidebar.reload(event.detail);
});

connection.addEventListener("welcome", (event) => {
  modelNote.model = event.detail.model ?? null;
});
connection.addEventListener("state", () => {
  if (connection.state === "waiting" && connection.closeCode === POLICY_VIOLATION) checkMembership();
});
window.addEventListener("popstate", () => {
  const id = /^\/c\/([^/]+)$/.exec(location.pathname)?.[1];
  if (id) open(decodeURIComponent(id), { push: false });
  else startNew({ push: false });
});

find("#language").addEventListener("click", () => setLanguage(language() === "zh" ? "en" : "zh"));
onLanguageChange(() => {
  transcript.refresh();
  sidebar.refresh();
  modelNote.refresh();
  connectionBar.refresh();
  composer.refresh();
  showFrame();
});

themeButton(find("#theme"));
modelNote.refresh();

/** Reads who this is and their courses; whether they are known at all. */
async function readCourses() {
  try {
    [{ me }, courses] = await Promise.all([api.me(), api.courses()]);
  } catch (error) {
    if (error.status !== 401) throw error;
    location.assign(loginAddress());
    return false;
  }
  return true;
}

/** The server has closed the connection for cause: the account or a place in a course has ended. */
async function checkMembership() {
  const { course: shown } = chat.conversation;
  try {
    if (!(await readCourses())) return;
  } catch {
    return;
  }
  if (shown === null || courses.some(({ id }) => id === shown)) return;
  keep("localStorage", COURSE, null);
  history.replaceState({}, "", "/");
  chat.startNew(courses[0]?.id ?? null);
  sidebar.showCourses(courses, chat.conversation.course);
  sidebar.reload(chat.conversation.course);
  showProblem(t("course.left"));
}

async function start() {
  try {
    if (!(await readCourses())) return;
  } catch {
    showProblem(t("courses.unreachable"), start);
    return;
  }
  const conversation = document.body.dataset.conversation || (isReload() && kept("sessionStorage", OPEN));
  if (conversation) {
    await open(conversation, { push: false });
    if (chat.conversation.id) history.replaceState({}, "", pathOf(chat.conversation.id));
  } else startNew({ push: false });
  if (location.search) history.replaceState({}, "", location.pathname);
  sidebar.showCourses(courses, chat.conversation.course);
  if (chat.conversation.course) sidebar.reload(chat.conversation.course);
  // After the conversation is known, so that the welcome finds what it should follow.
  connection.open();
}

await start();
document.documentElement.classList.add("is-ready");
