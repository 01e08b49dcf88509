// Entry: logging in, joining a course by its code, and one-time links.

import { ApiError, request } from "../api.js";
import { element, fill } from "../elements.js";
import { field, form, input, keepingFields } from "../forms.js";
import { language, onLanguageChange, startLanguage, t } from "../i18n.js";
import { keep, reloadWhenShownAgain } from "../preferences.js";
import { languageButton } from "../shell/language-button.js";
import { accountParts, findPerson } from "./account.js";

const card = document.querySelector("#card");
const { kind, word } = document.body.dataset;

/** What the reader came with: read once, shown again after a switch of language. */
let found = null;

function show(title, text, ...children) {
  document.title = `${title} · Lectern`;
  fill(card, element("h1", { class: "entry-title" }, title), text && element("p", { class: "entry-text" }, text), children);
  if (kind !== "account") card.querySelector("input")?.focus();
}

/** Where a person goes after the login: back to where they came from, on this server only. */
function afterwards(me) {
  const home = me.role === "teacher" ? "/teach" : "/";
  const next = new URLSearchParams(location.search).get("next");
  if (!next) return home;
  const url = URL.canParse(next, location.origin) ? new URL(next, location.origin) : null;
  // A blob: has the origin of its maker and is no page of the server's.
  const isOurs = url?.origin === location.origin && url.protocol === location.protocol;
  if (!isOurs || url.pathname === "/login") return home;
  // With the origin before it, since a path may begin with two slashes and would name a host.
  return url.pathname === "/" && !url.search ? home : url.origin + url.pathname + url.search;
}

function loginField(attributes = {}) {
  return input("login", { autocomplete: "username", autocapitalize: "none", spellcheck: "false", required: true, ...attributes });
}

function passwordField(name, autocomplete) {
  return input(name, { type: "password", autocomplete, required: true });
}

function showLogin() {
  const login = loginField();
  const password = passwordField("password", "current-password");
  const send = async () => {
    const { me } = await request("POST", "/api/login", { login: login.value, password: password.value });
    location.assign(afterwards(me));
  };
  show(
    t("login.title"),
    null,
    form({ label: t("login.submit"), send }, field(t("login.login"), login), field(t("login.password"), password)),
    element("p", { class: "entry-other" }, element("a", { href: "/join" }, t("login.join"))),
  );
}

function showCodeForm() {
  const code = input("code", { autocomplete: "off", autocapitalize: "characters", spellcheck: "false", class: "input input-code", required: true });
  const send = async () => {
    if (code.value.trim()) location.assign(`/join/${encodeURIComponent(code.value.trim())}`);
  };
  show(t("join.title"), t("join.text"), form({ label: t("join.next"), send }, field(t("join.code"), code)));
}

/** Fields of a new account, and what they hold. */
function accountFields() {
  const name = input("name", { autocomplete: "name", required: true });
  const login = loginField();
  const password = passwordField("password", "new-password");
  return {
    nodes: [
      field(t("account.name"), name, t("account.nameHint")),
      field(t("account.login"), login, t("account.loginHint")),
      field(t("account.password"), password, t("account.passwordHint")),
    ],
    values: () => ({ name: name.value, login: login.value, password: password.value }),
  };
}

function openCourse(course) {
  keep("localStorage", "lectern.course", course.id);
  location.assign("/");
}

async function join(account) {
  const { course } = await request("POST", "/api/join", { code: word, ...account });
  openCourse(course);
}

function showJoin({ course, is_member: isMember, me }) {
  const title = t("join.course", { title: (language() === "zh" && course.title_zh) || course.title });
  const back = `/login?next=${encodeURIComponent(location.pathname)}`;
  if (isMember) {
    const open = element("button", { class: "button button-main", type: "button", onclick: () => openCourse(course) }, t("join.open"));
    show(title, t("join.member"), open);
  } else if (me && !me.is_guest) {
    show(
      title,
      t("join.as", { name: me.name }),
      form({ label: t("join.submit"), send: () => join({}) }),
      element("p", { class: "entry-other" }, element("a", { href: back }, t("join.other"))),
    );
  } else {
    const account = accountFields();
    show(
      title,
      t("join.new"),
      element("p", { class: "entry-other" }, element("a", { href: back }, t("join.have"))),
      form({ label: t("account.createAndJoin"), send: () => join(account.values()) }, account.nodes),
    );
  }
}

function showStart({ purpose, name, login }) {
  const path = `/api/links/${encodeURIComponent(word)}`;
  const use = async (values) => location.replace(afterwards((await request("POST", path, values)).me));
  if (purpose === "reset") {
    const password = passwordField("password", "new-password");
    show(
      t("start.reset", { name }),
      t("start.resetText", { login }),
      form(
        { label: t("start.resetSubmit"), send: () => use({ password: password.value }) },
        element("input", { class: "visually-hidden", name: "login", autocomplete: "username", value: login, readonly: true, tabindex: "-1", "aria-hidden": "true" }),
        field(t("account.password"), password, t("account.passwordHint")),
      ),
    );
    return;
  }
  const account = accountFields();
  const [title, text] = purpose === "first_teacher" ? [t("start.first"), t("start.firstText")] : [t("start.invite"), t("start.inviteText")];
  show(title, text, form({ label: t("account.create"), send: () => use(account.values()) }, account.nodes));
}

function link(href, text) {
  return element("p", { class: "entry-other" }, element("a", { href }, text));
}

/** Nothing is behind the word in the address, or nobody could be asked. */
function showFailure(error) {
  const isGone = error.status === 404;
  if (kind === "start") {
    show(t("start.gone"), isGone ? t("start.goneText") : error.words, link("/login", t("start.toLogin")));
  } else {
    show(t("join.title"), isGone ? t("join.unknown") : error.words, link("/join", t("join.again")));
  }
}

function render() {
  if (kind === "login") showLogin();
  else if (kind === "account") showAccount();
  else if (word === "") showCodeForm();
  else if (found instanceof ApiError) showFailure(found);
  else if (kind === "join") showJoin(found);
  else showStart(found);
}

function showAccount() {
  if (found instanceof ApiError) show(t("mine.title"), found.words);
  else show(found.is_guest ? t("mine.guest") : found.name, t("mine.text"), accountParts(found));
}

async function find() {
  if (kind === "account") return findPerson().catch(asFound);
  if (kind === "login" || word === "") return null;
  const path = kind === "join" ? "/api/join/" : "/api/links/";
  return request("GET", path + encodeURIComponent(word)).catch(asFound);
}

function asFound(error) {
  if (error instanceof ApiError) return error;
  throw error;
}

reloadWhenShownAgain();
await startLanguage();
found = await find();
render();
let languageProblem = null;
languageButton(document.querySelector("#language"), (words) => {
  languageProblem?.remove();
  languageProblem = words && element("p", { class: "form-problem", role: "alert" }, words);
  if (words) document.querySelector(".entry-foot").before(languageProblem);
});
onLanguageChange(() => keepingFields(card, render));
document.documentElement.classList.add("is-ready");
