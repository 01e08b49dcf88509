// On paper nothing can be opened: while the page is printed, all sources of its answers are open.

/** Watches for a print; `root` is the transcript. */
export function openSourcesOnPaper(root) {
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...opened, ...root.querySelectorAll(".sources details:not([open])")];
    for (const details of opened) details.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    opened = [];
  });
}
