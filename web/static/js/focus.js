// The keyboard's place in the page: it is never lost to the document's start.

/**
 * Calls `render`, which may replace what is in `root`. Focus that was inside stays where it was, or
 * goes to the new control of the same name (`data-action`), or else to `fallback`: an element, or a
 * function that finds one afterwards.
 */
export function keepFocus(root, fallback, render) {
  const focused = root.contains(document.activeElement) ? document.activeElement : null;
  render();
  if (focused === null || focused === document.activeElement) return;
  const { action } = focused.dataset;
  // What was taken out and put back has lost it, and what is disabled takes none.
  if (tookFocus(focused)) return;
  if (action && tookFocus(root.querySelector(`[data-action="${CSS.escape(action)}"]`))) return;
  focusOn(typeof fallback === "function" ? fallback() : fallback, { preventScroll: true });
}

/** What takes no focus by itself gets it from a control that has gone. */
export function focusOn(node, options = {}) {
  if (tookFocus(node, options)) return;
  node.tabIndex = -1;
  node.focus(options);
}

/** Has `button` look, and be called, as one that does nothing for now. Not disabled, which would
 * take the focus from whoever has pressed it by a key. */
export function setWaiting(button, isWaiting) {
  button.setAttribute("aria-disabled", String(isWaiting));
}

/** Whether a press of `button` is to do nothing. */
export function isWaiting(button) {
  return button.getAttribute("aria-disabled") === "true";
}

function tookFocus(node, options = { preventScroll: true }) {
  node?.focus(options);
  return node !== null && node === document.activeElement;
}
