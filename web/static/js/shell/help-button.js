// The button that shows the help sheet, which is loaded then.

/** Makes `button` show what the page's words mean; returns what shows the keyboard's ways. */
export function helpButton(button) {
  const show = async (topic) => (await import("./help-sheet.js")).showHelp(topic);
  button.addEventListener("click", () => show("words"));
  return () => show("keys");
}
