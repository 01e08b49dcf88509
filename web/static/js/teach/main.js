// A teacher's pages: the list of courses, and one course with its tabs.

import { ApiError, api, loginAddress, request } from "../api.js";
import { element, fill, icon } from "../elements.js";
import { language, number, onLanguageChange, plural, startLanguage, t } from "../i18n.js";
import { reloadWhenShownAgain } from "../preferences.js";
import { languageButton } from "../shell/language-button.js";
import { themeButton } from "../shell/theme-button.js";
import { CourseList } from "./course-list.js";
import { Log } from "./log.js";
import { Materials } from "./materials.js";
import { People } from "./people.js";
import { Settings } from "./settings.js";
import { Trial } from "./trial.js";

const TABS = { materials: Materials, people: People, try: Trial, log: Log, settings: Settings };
const find = (selector) => document.querySelector(selector);

let content = find("#content");
let course = null;
let me = null;
let shown = null;
/** What the bar above the content tells: {error, isReading}, null for nothing. */
let problem = null;

function say(text) {
  find("#status").textContent = text;
}

function showProblem(now) {
  const bar = find("#problem");
  problem = now;
  bar.hidden = now === null;
  if (now !== null) fill(bar, icon("alert"), element("span", {}, now.error.words));
}

/** What `action` comes to; undefined where it throws an ApiError, which `tell` is given. */
async function told(action, tell) {
  try {
    return await action();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 401) location.assign(loginAddress());
    tell(error);
    return undefined;
  }
}

/** What every part of the page may use. */
const page = {
  get course() {
    return course;
  },
  set course(changed) {
    course = changed;
    showHead();
  },
  get me() {
    return me;
  },
  say,
  /** Runs what somebody wants done; what it throws as ApiError `tell` is given: by default it is
   * shown above the content. */
  async attempt(action, tell = (error) => showProblem({ error, isReading: false })) {
    showProblem(null);
    return told(action, tell);
  },
  /**
   * Runs what reads again what is shown. What has gone wrong before stays told, unless it was such a
   * reading too; `isShown()`: whether anybody still looks at it.
   */
  async read(action, isShown = () => true) {
    const isOurs = () => isShown() && (problem === null || problem.isReading);
    const found = await told(action, (error) => isOurs() && showProblem({ error, isReading: true }));
    if (found !== undefined && isOurs()) showProblem(null);
    return found;
  },
};

function showHead() {
  find("#name").textContent = me?.name ?? "";
  find("#logout").hidden = !me || me.is_guest;
  if (course === null) {
    document.title = `${t("teach.courses")} · Lectern`;
    return;
  }
  const title = (language() === "zh" && course.title_zh) || course.title;
  find("#course-head").hidden = false;
  find("#course-name").textContent = title;
  const facts = [
    course.week && t("course.week", { n: number(course.week) }),
    plural("course.materials", course.num_materials),
    course.join_code && t("course.code", { code: course.join_code }),
    course.archived_at && t("course.archived"),
  ];
  find("#course-facts").textContent = facts.filter(Boolean).join(" · ");
  find("#course-chat").href = `/?course=${encodeURIComponent(course.slug)}`;
  document.title = `${title} · Lectern`;
}

function showTab(name) {
  shown?.close?.();
  for (const link of document.querySelectorAll(".tab")) {
    if (link.dataset.tab === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showProblem(null);
  // A node of its own: what comes late for a tab that has gone is not drawn over this one.
  const fresh = content.cloneNode(false);
  content.replaceWith(fresh);
  content = fresh;
  shown = new TABS[name](content, page);
  return shown.open();
}

function tabOfAddress() {
  const name = location.pathname.split("/")[3] ?? "materials";
  return name in TABS ? name : "materials";
}

function followTabs() {
  for (const link of document.querySelectorAll(".tab")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
      event.preventDefault();
      history.pushState({}, "", link.href);
      showTab(link.dataset.tab);
    });
  }
  window.addEventListener("popstate", () => showTab(tabOfAddress()));
}

async function start() {
  const asked = document.body.dataset.course;
  ({ me } = await api.me());
  if (me.is_guest) {
    location.replace(loginAddress());
    return;
  }
  if (asked) course = await request("GET", `/api/courses/${encodeURIComponent(asked)}`);
  if (course !== null && course.role !== "teacher") {
    location.replace(`/?course=${encodeURIComponent(course.slug)}`);
    return;
  }
  showHead();
  if (course === null) {
    shown = new CourseList(content, page);
    await shown.open();
    return;
  }
  followTabs();
  await showTab(tabOfAddress());
}

reloadWhenShownAgain();
await startLanguage();
themeButton(find("#theme"));
let languageProblem = null;
languageButton(find("#language"), (words) => {
  if (words === null && problem !== languageProblem) return;
  languageProblem = words && { error: { words }, isReading: false };
  showProblem(languageProblem);
});
find("#logout").addEventListener("click", () =>
  page.attempt(async () => {
    await api.logOut();
    location.assign("/login");
  }),
);
onLanguageChange(() => {
  showHead();
  showProblem(problem);
  shown?.refresh();
});
await page.attempt(start);
document.documentElement.classList.add("is-ready");
