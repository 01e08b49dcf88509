// Modal dialogs: to confirm, to write a line, to show something. The browser keeps the focus inside
// and gives it back at the end.

import { element } from "../elements.js";
import { t } from "../i18n.js";

let count = 0;

/** A dialog with a heading and a button to close it; it is removed when it closes. */
export function show({ title, className = "" }, ...children) {
  const close = element("button", { class: "button", type: "button" }, t("dialog.close"));
  const head = heading(title);
  const node = element(
    "dialog",
    { class: `dialog ${className}`, "aria-labelledby": head.id },
    element("header", { class: "dialog-head" }, head, close),
    element("div", { class: "dialog-body" }, children),
  );
  close.addEventListener("click", () => node.close());
  opened(node, close);
  return node;
}

/** Asks before something is lost: whether the button `action` was pressed. `subject` is what it is
 * about, as people have written it. */
export function confirm({ title, subject = null, text, action }) {
  const head = heading(title);
  const words = element("p", { class: "dialog-text", id: `${head.id}-text` }, text);
  const go = element("button", { class: "button button-danger", type: "button" }, action);
  const stay = element("button", { class: "button", type: "button" }, t("dialog.cancel"));
  const node = element(
    "dialog",
    { class: "dialog dialog-small", role: "alertdialog", "aria-labelledby": head.id, "aria-describedby": words.id },
    head,
    subject && element("p", { class: "dialog-subject", dir: "auto" }, subject),
    words,
    element("div", { class: "dialog-foot" }, stay, go),
  );
  stay.addEventListener("click", () => node.close());
  go.addEventListener("click", () => node.close("yes"));
  // What changes nothing is what Enter does.
  return opened(node, stay).then((value) => value === "yes");
}

/** Asks for a line: the text without blanks around it, or null. Nothing empty is taken. */
export function prompt({ title, label, value, maxLength }) {
  const head = heading(title);
  const input = element("input", { class: "input", id: `${head.id}-input`, type: "text", dir: "auto", maxlength: maxLength, autocomplete: "off" });
  input.value = value;
  const save = element("button", { class: "button button-main", type: "submit" }, t("dialog.save"));
  const stay = element("button", { class: "button", type: "button" }, t("dialog.cancel"));
  const form = element(
    "form",
    {},
    head,
    element("label", { class: "dialog-label", for: input.id }, label),
    input,
    element("div", { class: "dialog-foot" }, stay, save),
  );
  const node = element("dialog", { class: "dialog dialog-small", "aria-labelledby": head.id }, form);
  const text = () => input.value.trim();
  input.addEventListener("input", () => (save.disabled = !text()));
  stay.addEventListener("click", () => node.close());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (text()) node.close(text());
  });
  const answer = opened(node, input).then((written) => written || null);
  input.select();
  return answer;
}

function heading(title) {
  count += 1;
  return element("h2", { class: "dialog-title", id: `dialog-${count}`, dir: "auto" }, title);
}

/** Opens it; resolves with what it is closed with ("" where it is only closed). */
function opened(node, focused) {
  document.body.append(node);
  node.showModal();
  focused.focus();
  return new Promise((resolve) => {
    node.addEventListener("close", () => {
      node.remove();
      resolve(node.returnValue);
    });
  });
}
