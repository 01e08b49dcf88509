// Who is here: the account's name, the way out, and the ways to other courses.

import { api } from "../api.js";
import { element, fill } from "../elements.js";
import { t } from "../i18n.js";

/** Fills `root`; `course` is the one that is shown, `leave()` is called to log out. */
export function showAccount(root, me, course, leave) {
  const link = (href, text) => element("a", { class: "quiet", href }, text);
  if (me === null) {
    fill(root);
    return;
  }
  const teaching =
    course?.role === "teacher"
      ? link(`/teach/${encodeURIComponent(course.slug)}`, t("account.teachThis"))
      : me.role === "teacher"
        ? link("/teach", t("account.teach"))
        : null;
  const out = element("button", { class: "quiet", type: "button", onclick: leave }, t("account.logout"));
  fill(
    root,
    teaching,
    link("/join", t("account.join")),
    me.is_guest ? link("/account", t("account.data")) : null,
    me.is_guest
      ? link("/login", t("account.enter"))
      : element("span", { class: "account-line" }, element("a", { class: "quiet account-name", href: "/account", dir: "auto", title: t("account.data") }, me.name), out),
  );
}

/** Ends the session and goes to the login; where that fails, `problem` (the ProblemBar) says so. */
export async function logOut(connection, problem) {
  // Before the session ends: the server closes its sockets, which this page would take for an
  // account that has ended, and it would go to the login a second time.
  connection.close();
  try {
    await api.logOut();
  } catch (error) {
    connection.open();
    problem.show(error.words ?? String(error), () => logOut(connection, problem));
    return;
  }
  // What stood here is not for whoever comes back by the browser's history.
  document.body.hidden = true;
  location.assign("/login");
}
