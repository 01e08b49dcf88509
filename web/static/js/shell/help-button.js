// The button that shows the help sheet, which is loaded then.

/** Makes `button` show it; returns what shows it. */
export function helpButton(button) {
  const show = async () => (await import("./help-sheet.js")).showHelp();
  button.addEventListener("click", show);
  return show;
}
