// Forms: labelled fields, and sending that says what went wrong at the field where it did.

import { ApiError } from "./api.js";
import { element, fill } from "./elements.js";
import { isWaiting, setWaiting } from "./focus.js";
import { t } from "./i18n.js";

let count = 0;

/** A control with its label, and a hint below it. */
export function field(label, control, hint = null) {
  count += 1;
  control.id ||= `field-${count}`;
  const note = hint && element("p", { class: "field-hint", id: `${control.id}-hint` }, hint);
  if (note) control.setAttribute("aria-describedby", note.id);
  return element("div", { class: "field" }, element("label", { for: control.id }, label), control, note);
}

/** A check box with its label behind it. */
export function checkField(label, control, hint = null) {
  const node = field(label, control, hint);
  node.classList.add("field-check");
  return node;
}

export function input(name, attributes = {}) {
  return element("input", { class: "input", name, type: "text", dir: "auto", ...attributes });
}

/** `options`: [[value, label], …] */
export function select(name, options, value, attributes = {}) {
  const node = element(
    "select",
    { class: "input", name, ...attributes },
    options.map(([key, label]) => element("option", { value: key }, label)),
  );
  node.value = value ?? "";
  return node;
}

/**
 * Calls `render`, which builds what is in `root` anew: what was written in a named field goes over
 * to the new one, and folds stay open. It is the same field where name, type and purpose are, and
 * the number of such fields before it: a password gets into no other. Files cannot be carried.
 */
export function keepingFields(root, render) {
  const fields = namedFields(root);
  const folds = [...root.querySelectorAll("details")];
  render();
  for (const [key, control] of namedFields(root)) {
    const old = fields.get(key);
    if (old === undefined || old === control) continue;
    if (control.type === "checkbox" || control.type === "radio") control.checked = old.checked;
    else control.value = old.value;
  }
  const newFolds = root.querySelectorAll("details");
  if (newFolds.length === folds.length) newFolds.forEach((fold, index) => (fold.open = folds[index].open));
}

function namedFields(root) {
  const fields = new Map();
  for (const control of root.querySelectorAll(":is(input, select, textarea)[name]:not([type=file])")) {
    let index = 0;
    const key = () => [control.name, control.type, control.autocomplete, index].join(" ");
    while (fields.has(key())) index += 1;
    fields.set(key(), control);
  }
  return fields;
}

/**
 * A form whose `send` is called when it is submitted; what it throws is told above the button, and
 * the field that is at fault is marked. `buttons`: what stands beside the submitting one.
 */
export function form({ label, send, buttons = [], attributes = {} }, ...children) {
  const problem = element("p", { class: "form-problem", role: "alert", hidden: true });
  const submit = element("button", { class: "button button-main", type: "submit" }, label);
  const node = element("form", { class: "form", novalidate: true, ...attributes }, children, problem, element("div", { class: "form-foot" }, submit, buttons));
  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (isWaiting(submit)) return;
    setWaiting(submit, true);
    clear(node, problem);
    try {
      await send(node);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      show(node, problem, error);
    } finally {
      setWaiting(submit, false);
    }
  });
  return node;
}

function clear(node, problem) {
  problem.hidden = true;
  for (const control of node.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
}

function show(node, problem, error) {
  problem.hidden = false;
  fill(problem, errorWords(error));
  const control = error.param && node.elements.namedItem(error.param);
  if (control instanceof HTMLElement) {
    control.setAttribute("aria-invalid", "true");
    control.focus();
  }
}

/** What an error says, with how long to wait where that is known. */
export function errorWords(error) {
  return error.status === 429 && error.retryAfterS ? t("error.wait", { seconds: error.retryAfterS }) : error.words;
}
