// One's own account and data: name, password, all that is kept, and deleting it.

import { loginAddress, request } from "../api.js";
import { element } from "../elements.js";
import { field, form, input } from "../forms.js";
import { t } from "../i18n.js";
import { forgetKept } from "../preferences.js";

/** The person that this is; leaves for the login where nobody is. Throws ApiError. */
export async function findPerson() {
  try {
    return (await request("GET", "/api/me")).me;
  } catch (error) {
    if (error.status === 401) location.assign(loginAddress());
    throw error;
  }
}

/** What the account page shows of `me`. */
export function accountParts(me) {
  const data = element("p", { class: "entry-other" }, element("a", { href: "/api/me/export", download: "" }, t("mine.export")));
  return [me.is_guest ? null : nameForm(me), me.is_guest ? null : passwordForm(me), data, removal(me), element("p", { class: "entry-other" }, element("a", { href: "/" }, t("mine.back")))];
}

function nameForm(me) {
  const name = input("name", { value: me.name, autocomplete: "name" });
  const saved = element("span", { role: "status" });
  const send = async () => {
    await request("PATCH", "/api/me", { name: name.value });
    saved.textContent = t("mine.saved");
  };
  return form({ label: t("mine.saveName"), send, buttons: [saved] }, field(t("account.name"), name, t("account.loginIs", { login: me.login })));
}

function passwordForm(me) {
  const old = input("old_password", { type: "password", autocomplete: "current-password" });
  const fresh = input("password", { type: "password", autocomplete: "new-password" });
  const saved = element("span", { role: "status" });
  const send = async (node) => {
    await request("PATCH", "/api/me", { old_password: old.value, password: fresh.value });
    node.reset();
    saved.textContent = t("mine.passwordSaved");
  };
  return folded(
    t("mine.password"),
    form(
      { label: t("start.resetSubmit"), send, buttons: [saved] },
      element("input", { class: "visually-hidden", autocomplete: "username", value: me.login, readonly: true, tabindex: "-1", "aria-hidden": "true" }),
      field(t("mine.oldPassword"), old),
      field(t("mine.newPassword"), fresh, t("account.passwordHint")),
    ),
  );
}

function removal(me) {
  const password = input("password", { type: "password", autocomplete: "current-password" });
  const send = async () => {
    await request("DELETE", "/api/me", me.is_guest ? {} : { password: password.value });
    forgetKept();
    location.assign("/login");
  };
  return folded(
    t("mine.delete"),
    element("p", { class: "entry-text" }, t("mine.deleteText")),
    form({ label: t("mine.deleteForEver"), send, attributes: { class: "form form-danger" } }, me.is_guest ? null : field(t("account.password"), password)),
  );
}

function folded(name, ...children) {
  return element("details", { class: "more" }, element("summary", {}, name), children);
}
