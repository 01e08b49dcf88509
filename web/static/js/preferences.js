// Theme: the system's, or the reader's choice, kept in a cookie so that the server renders it.

const COOKIE = "lectern_theme";
const ORDER = ["", "light", "dark"];

/** "" (as the system), "light" or "dark". */
export function theme() {
  return document.documentElement.dataset.theme ?? "";
}

/** Goes to the next of system, light, dark, and returns it. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  const age = next ? 31536000 : 0;
  document.cookie = `${COOKIE}=${next}; path=/; max-age=${age}; samesite=lax`;
  return next;
}

/** Storage that works where the browser refuses it (private windows): then nothing is kept. */
export function keep(storage, key, value) {
  try {
    if (value === null || value === "") window[storage].removeItem(key);
    else window[storage].setItem(key, value);
  } catch {
    // Nothing to do: what was to be kept lives as long as the page.
  }
}

export function kept(storage, key) {
  try {
    return window[storage].getItem(key);
  } catch {
    return null;
  }
}
