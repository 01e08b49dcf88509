// The menu of a conversation in the list: rename, export, delete.

import { element, icon } from "../elements.js";
import { t } from "../i18n.js";

const GAP_PX = 4;

/**
 * The button that opens the menu of `conversation` ({id, title}). `actions`: {rename(conversation),
 * remove(conversation)}.
 */
export function menuFor(conversation, actions) {
  const title = conversation.title || t("sidebar.untitled");
  const button = element(
    "button",
    {
      class: "icon-button conversation-more",
      type: "button",
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      "aria-label": t("conversation.menu", { title }),
      data: { menu: conversation.id },
    },
    icon("more"),
  );
  button.addEventListener("click", () => open(button, conversation, actions));
  return button;
}

function open(button, conversation, actions) {
  const address = `/api/conversations/${encodeURIComponent(conversation.id)}/export?format=`;
  const item = (text, listener, className = "") =>
    element("button", { class: `menu-item ${className}`, type: "button", role: "menuitem", tabindex: "-1", onclick: listener }, text);
  const download = (text, format) =>
    element("a", { class: "menu-item", role: "menuitem", tabindex: "-1", href: address + format, download: true }, text);
  const menu = element(
    "div",
    { class: "menu", role: "menu", popover: "auto", "aria-label": button.getAttribute("aria-label") },
    item(t("conversation.rename"), () => actions.rename(conversation)),
    download(t("conversation.exportMarkdown"), "md"),
    download(t("conversation.exportJsonl"), "jsonl"),
    item(t("conversation.delete"), () => actions.remove(conversation), "menu-item-danger"),
  );
  // Closed before the chosen action begins: a dialog gives the focus back to the button then.
  menu.addEventListener("click", () => menu.hidePopover(), { capture: true });
  menu.addEventListener("keydown", (event) => move(menu, event));
  menu.addEventListener("toggle", ({ newState }) => {
    if (newState === "open") return;
    button.setAttribute("aria-expanded", "false");
    menu.remove();
  });
  document.body.append(menu);
  menu.showPopover();
  button.setAttribute("aria-expanded", "true");
  place(menu, button.getBoundingClientRect());
  menu.querySelector(".menu-item").focus();
}

/** Below the button, or above where there is no room; never over the window's edge. */
function place(menu, button) {
  const { width, height } = menu.getBoundingClientRect();
  const below = button.bottom + GAP_PX;
  const top = below + height <= innerHeight ? below : Math.max(GAP_PX, button.top - GAP_PX - height);
  const left = Math.max(GAP_PX, Math.min(button.left, innerWidth - width - GAP_PX));
  menu.style.top = `${top}px`;
  menu.style.left = `${left}px`;
}

function move(menu, event) {
  const items = [...menu.querySelectorAll(".menu-item")];
  const at = items.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
  if (event.key === "Tab") menu.hidePopover();
  if (to === undefined) return;
  event.preventDefault();
  items.at(to % items.length).focus();
}
