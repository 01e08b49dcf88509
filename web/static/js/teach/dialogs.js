// Asking before something is lost.

import { element } from "../elements.js";
import { t } from "../i18n.js";

/** A modal dialog with a heading; it is removed when it closes. */
export function dialog(title, ...children) {
  const close = element("button", { class: "button", type: "button" }, t("dialog.close"));
  const node = element(
    "dialog",
    { class: "dialog", "aria-label": title },
    element("header", { class: "dialog-head" }, element("h2", { class: "card-title", dir: "auto" }, title), close),
    element("div", { class: "dialog-body" }, children),
  );
  close.addEventListener("click", () => node.close());
  node.addEventListener("close", () => node.remove());
  document.body.append(node);
  node.showModal();
  return node;
}

/** Asks `question`; true if the button `label` was pressed. */
export function confirmed(question, label) {
  return new Promise((resolve) => {
    const go = element("button", { class: "button button-danger", type: "button" }, label);
    const stay = element("button", { class: "button", type: "button", autofocus: true }, t("dialog.cancel"));
    const node = element(
      "dialog",
      { class: "dialog dialog-small", "aria-label": question },
      element("p", { class: "dialog-question" }, question),
      element("div", { class: "form-foot" }, go, stay),
    );
    let answer = false;
    go.addEventListener("click", () => {
      answer = true;
      node.close();
    });
    stay.addEventListener("click", () => node.close());
    node.addEventListener("close", () => {
      node.remove();
      resolve(answer);
    });
    document.body.append(node);
    node.showModal();
  });
}
