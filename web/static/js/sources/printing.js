// On paper nothing can be opened: while the page is printed, all sources of its answers are open.

/** Watches for a print; `root` is the transcript. */
export function openSourcesOnPaper(root) {
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...opened, ...root.querySelectorAll(".sources details:not([open])")];
    for (const details of opened) {
      details.open = true;
      // The browser's own event comes when the sheet is drawn already.
      details.dispatchEvent(new Event("toggle"));
    }
  });
  window.addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    opened = [];
  });
}
